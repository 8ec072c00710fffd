#!/usr/bin/env python3
"""Draws the card's figures: plots.py OUT_OF_A_RUN FOLDER. Needs matplotlib. A run is what run.sh leaves."""
import argparse
import json
from pathlib import Path

import matplotlib
matplotlib.use("svg")
import matplotlib.pyplot as plt


def read(path):
    """Every third line, which keeps the figures small."""
    return [json.loads(line) for line in path.read_text().splitlines()[::3]]


def curves(run, folder):
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 3.2))
    trunk = [r for r in read(run / "trunk/log.jsonl") if "loss" in r]
    for stage in dict.fromkeys(r["stage"] for r in trunk):
        rows = [r for r in trunk if r["stage"] == stage]
        left.plot([r["tokens"] / 1e6 for r in rows], [r["loss"] for r in rows], label=stage, linewidth=1)
    index = [r for r in trunk if "index" in r]
    left.plot([r["tokens"] / 1e6 for r in index], [r["index"] for r in index], label="indexer (KL)", linewidth=1, linestyle=":")
    left.set(yscale="log", xlabel="million tokens", title="decoder: loss")
    mtp = [r for r in read(run / "mtp/log.jsonl") if "step1" in r]
    for k in (1, 2, 4, 7):
        middle.plot([r["tokens"] / 1e6 for r in mtp], [r[f"step{k}"] for r in mtp], label=f"step {k}", linewidth=1)
    middle.set(ylim=(0.7, 1), xlabel="million tokens", title="MTP: share equal to the decoder")
    drafter = [r for r in read(run / "drafter/log.jsonl") if "reachable" in r]
    for key, label in (("right", "selector's choice"), ("reachable", "among the candidates")):
        right.plot([r["tokens"] / 1e6 for r in drafter], [r[key] for r in drafter], label=label, linewidth=1)
    right.set(ylim=(0.7, 1), xlabel="million tokens", title="drafter: share right")
    for axis in (left, middle, right):
        axis.legend(fontsize=8)
        axis.grid(alpha=0.3)
    save(figure, folder / "curves.svg")


def scores(run, folder):
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.2))
    for name, style in (("sparse", "o-"), ("dense", "s--")):
        found = json.loads((run / f"{name}.json").read_text())["right"]
        lengths = sorted(int(k.split("/")[1]) for k in found if k.startswith("recall/") and k.split("/")[1].isdigit())
        left.plot(lengths, [100 * found[f"recall/{n}"][0] for n in lengths], style, label=name)
    left.set(xscale="log", ylim=(0, 102), xlabel="tokens", title="recall, % right")
    left.set_xticks(lengths, lengths)
    left.minorticks_off()
    left.legend()
    drafts = json.loads((run / "accept.json" if (run / "accept.json").exists() else run / "sparse.json").read_text())
    tasks = [t for t in drafts["mtp"] if t != "all"] + ["all"]
    for i, (key, label) in enumerate((("mtp", "MTP, 7 steps"), ("drafter", "DFlash2"))):
        right.bar([x + 0.4 * i for x in range(len(tasks))], [drafts[key][t]["tokens_per_round"] for t in tasks], 0.38, label=label)
    right.set_xticks([x + 0.2 for x in range(len(tasks))], tasks, rotation=30, fontsize=8)
    right.set(title="tokens per round, of 8")
    right.legend()
    save(figure, folder / "scores.svg")


def save(figure, path):
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("folder", type=Path)
    a = parser.parse_args()
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "baton", "path.simplify_threshold": 0.5})
    curves(a.run, a.folder)
    scores(a.run, a.folder)


if __name__ == "__main__":
    main()
