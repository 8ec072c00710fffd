#!/usr/bin/env python3
"""Trains the small model in stages within a given time, and writes it in the released layout.

    python train.py --budget-s 1000 --out run

Stages: dense attention on short rows, then on long ones; the indexer learns what dense attention looks at; attention keeps to its choice,
with weights rounded as they will be stored; the MTP layer and the drafter learn on the finished model. Each stage ends at its share of the
budget, whatever speed the machine has, and leaves its weights in OUT/STAGE.pt. OUT/log.jsonl has the curves.
"""
import argparse
import json
import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from attention import CHOOSE, DENSE, INDEX, SPARSE
from batches import Batches
from compiled import compile_pieces
from config import PREFIX, load_config
from drafter import DrafterConfig, block_loss, candidate_scores, drafter_table, initialise_drafter, propose, save_drafter
from model import decode, make_rows, next_token_loss
from mtp import draft, draft_losses
from optimiser import Optimiser
from weights import copy_tokenizer, initialise, live_weights, load_released, save_released, storage_of

HERE = Path(__file__).resolve().parent
BIAS_STEP = 0.001  # of the router's correction, per step, towards equal load


@dataclass(frozen=True)
class Stage:
    name: str
    share: float  # of the budget
    length: int   # tokens of a row
    mix: str
    mode: str     # of attention
    what: str     # trunk, mtp or drafter
    fp8_after: float = 2.0  # share of the stage after which weights are rounded


STAGES = (
    Stage("short", 0.36, 2048, "mid", DENSE, "trunk"),
    Stage("long", 0.14, 8192, "long", DENSE, "trunk"),
    Stage("index", 0.04, 8192, "long", INDEX, "trunk"),
    Stage("sparse", 0.20, 8192, "long", SPARSE, "trunk", fp8_after=0.4),
    Stage("mtp", 0.14, 2048, "chat", SPARSE, "mtp", fp8_after=0.0),  # the first two fifths with dense attention
    Stage("drafter", 0.12, 2048, "chat", CHOOSE, "drafter", fp8_after=0.0),
)


class Run:
    def __init__(self, arguments):
        self.a = arguments
        self.start = time.time()
        self.device = arguments.device
        self.dtype = torch.bfloat16
        self.c = load_config(arguments.config)
        self.storage = storage_of(self.c)
        self.mtp_prefix = self.c.prefix(self.c.layer_count)
        self.masters = initialise(self.c, arguments.seed)
        if arguments.weights:
            folder = Path(arguments.weights).is_dir()
            self.masters = load_released(arguments.weights)[1] if folder else torch.load(arguments.weights, map_location="cpu")
        self.masters = {n: w.to(self.device).requires_grad_(False) for n, w in self.masters.items()}
        self.out = Path(arguments.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.log = open(self.out / "log.jsonl", "a", buffering=1)
        self.optimisers = {}
        self.tokens = 0

    def elapsed(self):
        return time.time() - self.start

    def write(self, **fields):
        fields = {k: round(v, 5) if isinstance(v, float) else v for k, v in fields.items()}
        self.log.write(json.dumps(fields) + "\n")
        print(" ".join(f"{k}={v}" for k, v in fields.items()), flush=True)

    def optimiser(self, what):
        """The trunk keeps its momentum from stage to stage."""
        if what not in self.optimisers:
            names = [n for n in self.masters if n.startswith(self.mtp_prefix) == (what == "mtp") and "correction_bias" not in n]
            self.optimisers[what] = (Optimiser(self.masters, names), names)
        return self.optimisers[what]

    def rows(self, batch):
        return make_rows(batch[0], batch[1], batch[2], self.device)

    def balance(self, loads):
        """Experts that got less than their share become a little likelier, the others less."""
        for router, load in loads.items():
            bias = self.masters[router + "e_score_correction_bias"]
            bias += BIAS_STEP * torch.sign(load.mean() - load)


def rate_of(run, stage, begin, end, trunk_end):
    """Constant, then falling to zero: the trunk's rate over the last third of all its stages, the others' over most of theirs."""
    if stage.what == "trunk":
        begin, end = 0.0, trunk_end
    falls_from = begin + (0.67 if stage.what == "trunk" else 0.4) * (end - begin)
    return min(1.0, max(0.02, (end - run.elapsed()) / max(end - falls_from, 1e-9)))


def trunk_step(run, w, rows, stage):
    result = decode(w, run.c, rows, stage.mode)
    loss, right = next_token_loss(result.hidden, w["lm_head.weight"], rows.tokens, rows.doc, rows.weight)
    figures = {"loss": loss, "right": right}
    total = loss
    if result.index_losses:
        figures["index"] = sum(result.index_losses) / len(result.index_losses)
        total = total + sum(result.index_losses)
    return total, figures, result.loads


def mtp_step(run, w, rows, stage):
    with torch.no_grad():
        hidden = decode(w, run.c, rows, CHOOSE).hidden
    outputs, index, loads = draft(w, run.c, rows, hidden, stage.mode)
    found = draft_losses(outputs, hidden, w["lm_head.weight"], rows)
    total = sum(loss * 0.9**k for k, (loss, _) in enumerate(found)) / 4
    figures = {"loss": total, **{f"step{k}": right for k, (_, right) in enumerate(found, 1)}, "index": index}
    return total + index, figures, loads


def anchors_of(rows, block, count):
    """Positions whose next tokens are the model's to say, drawn anew each time -> anchors [b, count], targets and their weights
    [b, count, block - 1]"""
    b, t = rows.doc.shape
    answer = (rows.weight >= 1).float()
    answer[:, -block:] = 0
    follow = torch.nn.functional.pad(answer[:, 1:], (0, 1))
    anchor = torch.multinomial(follow + 1e-9, count, replacement=False)
    at = (anchor.unsqueeze(-1) + torch.arange(1, block, device=anchor.device)).clamp(max=t - 1)
    flat = at.flatten(1)
    inside = rows.doc.gather(1, flat).view_as(at) == rows.doc.gather(1, anchor).unsqueeze(-1)
    weight = (rows.weight.gather(1, flat).view_as(at) >= 1) * inside * follow.gather(1, anchor).unsqueeze(-1)
    return anchor, rows.tokens.gather(1, flat).view_as(at), weight


def drafter_step(run, w, rows, drafter, dc, anchors):
    with torch.no_grad():
        features = torch.cat(decode(w, run.c, rows, CHOOSE, capture=dc.target_layers).features, -1)
    anchor, target, weight = anchors_of(rows, dc.block, anchors)
    weight = weight * torch.exp(-torch.arange(dc.block - 1, device=anchor.device) / 4)
    first = rows.tokens.gather(1, anchor)
    hidden = propose(drafter, dc, features.unflatten(0, tuple(rows.doc.shape)), rows.doc, anchor, first, w[PREFIX + "embed_tokens.weight"])
    before = torch.cat([first.unsqueeze(-1), target[..., :-1]], -1)
    s = "candidate_selector."
    logits, candidates, scores = candidate_scores(hidden[..., 1:, :], w["lm_head.weight"], before, drafter[s + "predecessor_codebook"],
                                                  drafter[s + "successor_codebook"], drafter[s + "hidden_projection.weight"], dc)
    backbone, selector, right, reachable = block_loss(logits, candidates, scores, target, weight)
    return backbone + selector, {"loss": backbone, "selector": selector, "right": right, "reachable": reachable}


def run_stage(run, stage, begin, end, trunk_end, batches):
    a = run.a
    if stage.what == "drafter":
        dc = DrafterConfig(width=run.c.width, vocab=run.c.vocab, target_layers=tuple(a.target_layers), mask_token=a.mask_token)
        drafter = {n: x.to(run.device) for n, x in initialise_drafter(dc, a.seed + 1).items()}
        names = list(drafter)
        optimiser = Optimiser(drafter, names)
        trained = drafter
    else:
        optimiser, names = run.optimiser(stage.what)
        trained = run.masters
    for n in names:
        trained[n].requires_grad_(True)
    # What later stages stand on: the weights as they will be stored.
    frozen = None if stage.what == "trunk" else {n: x.detach() for n, x in live_weights(run.masters, run.storage, run.dtype, True).items()}
    step, tokens, since, last = 0, 0, time.time(), 0
    while step < (3 if a.steps is None else a.steps) or (run.elapsed() < end and (a.steps is None or step < a.steps)):
        fp8 = run.elapsed() - begin >= stage.fp8_after * (end - begin)
        rows = run.rows(batches.next())
        if stage.what == "drafter":
            live = {n: x.to(run.dtype) for n, x in drafter.items()}
            total, figures = drafter_step(run, frozen, rows, live, dc, a.anchors)
            loads = {}
        elif stage.what == "mtp":
            own = live_weights({n: run.masters[n] for n in run.masters if n.startswith(run.mtp_prefix)}, run.storage, run.dtype, fp8)
            mode = stage if run.elapsed() - begin > 0.4 * (end - begin) else replace(stage, mode=INDEX)
            total, figures, loads = mtp_step(run, {**frozen, **own}, rows, mode)
        else:
            total, figures, loads = trunk_step(run, live_weights(run.masters, run.storage, run.dtype, fp8), rows, stage)
        total.backward()
        warm = min(1.0, (step + 1) / 60) if stage.name in ("short", "mtp", "drafter") else 1.0
        rate = rate_of(run, stage, begin, end, trunk_end) * warm
        norm = optimiser.step(a.muon_rate * rate, a.adam_rate * rate)
        run.balance(loads)
        step += 1
        tokens += rows.tokens.numel()
        if step % a.log_every == 0 or step in (1, 2, 5):
            figures = {k: v.item() for k, v in figures.items()}
            now = time.time()
            spread = max(((x.max() / x.mean()).item() for x in loads.values()), default=0.0)
            run.write(stage=stage.name, step=step, t=round(run.elapsed(), 1), tokens=run.tokens + tokens, rate=rate, grad=norm.item(),
                      per_s=int((tokens - last) / (now - since)), repeated=batches.repeated, fp8=int(fp8), busiest=spread, **figures)
            since, last = now, tokens
    for n in names:
        trained[n].requires_grad_(False)
    run.tokens += tokens
    if stage.what == "drafter":
        save_drafter(drafter, dc, run.out / "drafter")
    else:
        torch.save({n: w.cpu() for n, w in run.masters.items()}, run.out / "unfinished")
        (run.out / "unfinished").rename(run.out / f"{stage.name}.pt")  # who waits for the file sees it whole
    memory = torch.cuda.max_memory_allocated() / 2**30 if run.device != "cpu" else 0.0
    run.write(stage=stage.name, done=1, steps=step, t=round(run.elapsed(), 1), memory_gib=memory)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--budget-s", type=float, required=True, help="time for all stages, start-up and compilation included")
    parser.add_argument("--out", required=True, help="folder of the log, the weights of each stage and the finished model")
    parser.add_argument("--config", default=HERE / "config.json")
    parser.add_argument("--stages", help="only these, by name, with commas between")
    parser.add_argument("--weights", help="weights to begin with: STAGE.pt of an earlier run, or a model's folder")
    parser.add_argument("--after", help="begin when this file is there; rows are made meanwhile")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--workers", type=int, default=4, help="processes that make data, for each kind of rows")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, help="at most this many steps of each stage")
    parser.add_argument("--length", type=int, help="rows of this length in all stages (a rehearsal on a small machine)")
    parser.add_argument("--mix", help="rows of this mix in all stages")
    parser.add_argument("--tokens", type=int, default=65536, help="of a step")
    parser.add_argument("--anchors", type=int, default=128, help="blocks per row that the drafter learns from")
    parser.add_argument("--muon-rate", type=float, default=4e-3)
    parser.add_argument("--adam-rate", type=float, default=3e-3)
    parser.add_argument("--target-layers", type=int, nargs="+", default=[2, 4, 6], help="layers whose output the drafter reads")
    parser.add_argument("--mask-token", type=int, default=2013, help="[MASK]")
    parser.add_argument("--log-every", type=int, default=20)
    a = parser.parse_args()
    torch.manual_seed(a.seed)
    torch.set_float32_matmul_precision("high")
    compile_pieces(a.device != "cpu" and not a.no_compile)

    stages = [s for s in STAGES if a.stages is None or s.name in a.stages.split(",")]
    if a.length:
        stages = [replace(s, length=a.length) for s in stages]
    if a.mix:
        stages = [replace(s, mix=a.mix) for s in stages]
    sources = {}
    for i, s in enumerate(stages):
        if (s.length, s.mix) not in sources:
            sources[s.length, s.mix] = Batches(s.length, s.mix, max(1, a.tokens // s.length), a.workers, seed=a.seed * 100 + i)
    for source in sources.values():
        source.begin()
    while a.after and not Path(a.after).exists():
        time.sleep(0.2)
    run = Run(a)
    scale = a.budget_s / (sum(s.share for s in stages) if a.stages else 1)
    ends = [scale * sum(s.share for s in stages[:i + 1]) for i in range(len(stages))]
    trunk_end = max((e for s, e in zip(stages, ends) if s.what == "trunk"), default=0.0)
    for i, (s, end) in enumerate(zip(stages, ends)):
        run_stage(run, s, ends[i - 1] if i else 0.0, end, trunk_end, sources[s.length, s.mix])
    for source in sources.values():
        source.close()

    save_released(run.masters, run.c, a.config, run.out / "fp8", fp8=True)
    save_released(run.masters, run.c, a.config, run.out / "bf16", fp8=False)
    for folder in ("fp8", "bf16"):
        copy_tokenizer(HERE / "data" / "tokenizer", run.out / folder)
    parameters = sum(w.numel() for w in run.masters.values())
    run.write(finished=1, t=round(run.elapsed(), 1), parameters=parameters, drafter=sum(
        torch.Size(shape).numel() for _, shape, _ in drafter_table(DrafterConfig(run.c.width, run.c.vocab, tuple(a.target_layers), 0))))


if __name__ == "__main__":
    main()
