#!/usr/bin/env python3
"""Compares the training model with golden data of the reference, tensor by tensor: check_golden.py FOLDER... (tests/data/golden/*)

Everything is computed in float64 (and the recurrence also in float32 token by token); the bounds are those of golden.json for float32.
"""
import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from attention import CHOOSE
from kda import chunked, recurrent
from model import decode, head, make_rows
from mtp import draft
from weights import live_weights, load_released, storage_of


def error(x, golden):
    """max |x - g| / max |g|"""
    return ((x.double() - golden.double()).abs().max() / golden.double().abs().max().clamp_min(1e-30)).item()


def padded_rows(ids, pool):
    """One document in one row, lengthened to whole pools."""
    n = len(ids)
    extra = -n % max(pool, 4)
    tokens = np.concatenate([ids, np.zeros(extra, np.int64)])[None]
    return make_rows(tokens, np.zeros(tokens.shape, np.int32), np.ones(tokens.shape, np.float32))


def check_prompt(w, c, golden, tag, errors):
    ids = golden[tag + "ids"].numpy().astype(np.int64)
    result = decode(w, c, padded_rows(ids, c.pool), CHOOSE, keep_streams=True)
    pos = golden[tag + "pos"].long()
    for layer, x in enumerate(result.streams):
        errors.setdefault(f"hidden.{layer}", []).append(error(x[pos], golden[f"{tag}hidden.{layer}"]))
    errors.setdefault("final", []).append(error(result.hidden[pos], golden[tag + "final"]))
    logits = head(result.hidden[golden[tag + "logits_pos"].long()], w["lm_head.weight"])
    errors.setdefault("logits", []).append(error(logits, golden[tag + "logits"]))


def check_drafts(w, c, golden, index, errors):
    """One round of seven steps: the tokens drafted in the golden data are fed, so that a single pass shows every step."""
    prompt = golden[f"p{index}.ids"].numpy().astype(np.int64)
    n = len(prompt)
    drafts = golden[f"mtp.p{index}.shared_plus.ids"].numpy().astype(np.int64)
    ids = np.concatenate([prompt, golden[f"p{index}.greedy.ids"].numpy()[:1], drafts])
    rows = padded_rows(ids, c.pool)
    hidden = decode(w, c, rows, CHOOSE).hidden
    outputs, _, _ = draft(w, c, rows, hidden, CHOOSE)
    for step, x in enumerate(outputs):
        errors.setdefault("mtp.h", []).append(error(x[n - 1], golden[f"mtp.p{index}.shared_plus.h"][step]))
        logits = head(x[n - 1:n], w["lm_head.weight"])[0]
        errors.setdefault("mtp.logits", []).append(error(logits, golden[f"mtp.p{index}.shared_plus.logits"][step]))


def check_recurrence():
    g = torch.Generator().manual_seed(5)
    n, h, d = 150, 2, 16
    q, k, v = (torch.randn(n, h, d, generator=g, dtype=torch.float64) for _ in range(3))
    k = k / k.norm(dim=-1, keepdim=True)
    decay = -5 * torch.rand(n, h, d, generator=g, dtype=torch.float64)
    beta = torch.rand(n, h, generator=g, dtype=torch.float64)
    starts = [0, 1, 65, 129, n]
    return error(chunked(q, k, v, decay, beta, starts), recurrent(q, k, v, decay, beta, starts)[0])


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    failed = check_recurrence() > 1e-9
    print(f"chunked against recurrent KDA: {check_recurrence():.1e}{'  FAILED' if failed else ''}")
    for folder in parser.parse_args().folders:
        c, masters = load_released(folder)
        masters = {name: x.double() for name, x in masters.items()}
        w = live_weights(masters, storage_of(c), torch.float64, fp8=False)
        golden = load_file(folder / "golden.safetensors")
        bounds = json.loads((folder / "golden.json").read_text())["tolerance"]["fp32"]
        errors = {}
        prompts = sorted({key.split(".")[0] for key in golden if key.startswith("p") and key[1].isdigit()})
        for tag in prompts:
            check_prompt(w, c, golden, tag + ".", errors)
            if c.mtp:
                check_drafts(w, c, golden, int(tag[1:]), errors)
        for kind, found in errors.items():
            bound = bounds[kind][0] if isinstance(bounds[kind], list) else bounds[kind]
            worst = max(found)
            bad = not worst <= bound
            failed |= bad
            print(f"{folder.name:12} {kind:10} {len(prompts)} prompts, worst {worst:.1e}, allowed {bound:.1e}{'  FAILED' if bad else ''}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
