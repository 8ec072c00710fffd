#!/usr/bin/env python3
"""Writes a small DFlash2 drafter with random weights and what it proposes: make_drafter_golden.py TARGET OUT

TARGET is a golden folder (tests/data/golden/mtp), OUT gets the drafter's checkpoint and drafts.safetensors: for several anchors in a text
of random tokens, everything computed in float64,
    ids [tokens], anchors [n]          the text, and the positions of the known tokens; a block sees the tokens before its anchor
    features [tokens, captured * d]    stream means of the target
    hidden [n, block, d]               of the blocks, after the last norm
    candidates [n, block - 1, top]     most likely first
    margins [n, block - 1]             by how much the chosen candidate's score leads
    drafts [n, block - 1]              the greedy path
"""
import argparse
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from attention import CHOOSE
from check_golden import padded_rows
from config import PREFIX
from drafter import DrafterConfig, candidate_scores, drafter_table, load_drafter, propose, save_drafter
from model import decode
from weights import live_weights, load_released, storage_of

TOKENS = 150
WINDOW = 40
ANCHORS = (1, 2, 17, WINDOW - 1, WINDOW, WINDOW + 1, 64, 65, 111, TOKENS - 1)  # short contexts, the ring's edge, several times around it


def random_weights(c, generator):
    """Like a fresh drafter's, but nothing is zero or one: each part shows in the result."""
    weights = {}
    for name, shape, kind in drafter_table(c):
        x = torch.randn(shape, generator=generator)
        if kind == "ones":
            x = 1 + 0.2 * x
        elif kind == "tap":
            x = 0.3 * x
            x[:, 0] += 1
        elif kind == "zeros":
            x = x * (0.7 if "codebook" in name else 0.3 / c.width**0.5)
        else:
            x = x * kind
        weights[name] = x
    return weights


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=8)
    a = parser.parse_args()
    generator = torch.Generator().manual_seed(a.seed)

    c, masters = load_released(a.target)
    w = live_weights({name: x.double() for name, x in masters.items()}, storage_of(c), torch.float64, fp8=False)
    dc = DrafterConfig(width=c.width, vocab=c.vocab, target_layers=(0, c.layer_count - 2, c.layer_count - 1), mask_token=c.vocab - 1,
                       heads=4, kv_heads=2, head_dim=16, inner=64, window=WINDOW, rank=8, top=8)
    save_drafter(random_weights(dc, generator), dc, a.out)
    dc, drafter = load_drafter(a.out)
    drafter = {name: x.double() for name, x in drafter.items()}

    ids = torch.randint(c.vocab, (TOKENS,), generator=generator).numpy().astype(np.int64)
    rows = padded_rows(ids, c.pool)
    features = torch.cat(decode(w, c, rows, CHOOSE, capture=dc.target_layers).features, -1)
    anchors = torch.tensor(ANCHORS)
    first = rows.tokens.gather(1, anchors[None])
    hidden = propose(drafter, dc, features.unflatten(0, tuple(rows.tokens.shape)), rows.doc, anchors[None], first,
                     w[PREFIX + "embed_tokens.weight"])[0]

    s = "candidate_selector."
    before = first[0]
    drafts, candidates, margins = [], [], []
    for step in range(1, dc.block):
        _, found, scores = candidate_scores(hidden[:, step], w["lm_head.weight"], before, drafter[s + "predecessor_codebook"],
                                            drafter[s + "successor_codebook"], drafter[s + "hidden_projection.weight"], dc)
        best = scores.topk(2, -1).values
        before = found.gather(-1, scores.argmax(-1, keepdim=True)).squeeze(-1)
        drafts.append(before)
        candidates.append(found)
        margins.append(best[:, 0] - best[:, 1])
    save_file({"ids": torch.from_numpy(ids).int(), "anchors": anchors.int(), "features": features[:TOKENS].float().contiguous(),
               "hidden": hidden.float().contiguous(), "candidates": torch.stack(candidates, 1).int().contiguous(),
               "margins": torch.stack(margins, 1).float().contiguous(), "drafts": torch.stack(drafts, 1).int().contiguous()},
              a.out / "drafts.safetensors")
    print(f"{len(ANCHORS)} blocks, smallest margin of a choice {torch.stack(margins).min():.1e}")


if __name__ == "__main__":
    main()
