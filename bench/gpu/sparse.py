#!/usr/bin/env python3
"""Runs the harness of a family over the shapes of bench/shapes.json: rows of one rank, attention split by request.

usage: sparse.py mla|mhc|indexer HARNESS [--json FILE]
"""
import argparse
import json
import pathlib
import subprocess
import sys


def main():
    p = argparse.ArgumentParser()
    p.add_argument("family", choices=["mla", "mhc", "indexer"])
    p.add_argument("harness")
    p.add_argument("--json")
    a = p.parse_args()
    s = json.loads((pathlib.Path(__file__).resolve().parents[1] / "shapes.json").read_text())
    rows = sorted({max(8, m // s["ranks"]) for m in s["decode_rows"]})
    layers = ["--layers", str(s["model"]["sparse_layers"]), "--context", str(s["context"])]
    if a.family == "mla":
        many = s["prefill_rows_per_rank"]
        options, shapes = layers, [f"{m}:{t}" for t in ("fp8", "bf16") for m in rows]
        shapes += [f"{many}:fp8:prompt", f"{many}:bf16:prompt", f"{many}:bf16:prefill"]
    elif a.family == "indexer":
        options, shapes = layers, [str(m) for m in rows]
    else:
        full = max(rows)
        options = ["--sites", str(s["model"]["mhc_sites"])]
        shapes = [str(m) for m in rows] + [f"{full}:16", str(max(s["decode_rows"])), str(s["prefill_rows_per_rank"])]
    command = [a.harness, "time", *options]
    sys.exit(subprocess.call(command + (["--json", a.json] if a.json else []) + shapes))


main()
