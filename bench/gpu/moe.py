#!/usr/bin/env python3
"""Runs the expert-path harness over the shapes of bench/shapes.json. usage: moe.py HARNESS [--json FILE] [--only decode|prefill|route]"""
import argparse
import json
import pathlib
import subprocess
import sys


def main():
    p = argparse.ArgumentParser()
    p.add_argument("harness")
    p.add_argument("--json")
    p.add_argument("--only", choices=["decode", "prefill", "route"])
    a = p.parse_args()
    s = json.loads((pathlib.Path(__file__).resolve().parents[1] / "shapes.json").read_text())
    chunk = s["prefill_rows_per_rank"] * s["ranks"]
    shapes = []
    if a.only in (None, "decode"):
        shapes += [f"{m}:{r}" for m in s["decode_rows"] for r in s["routing"]]
    if a.only in (None, "prefill"):
        shapes += [f"{chunk}:{r}" for r in s["routing"]]
    if a.only in (None, "route"):
        shapes += [f"{m}:route" for m in (*s["decode_rows"], s["prefill_rows_per_rank"])]
    command = [a.harness, "time", "--layers", str(s["model"]["moe_layers"])]
    sys.exit(subprocess.call(command + (["--json", a.json] if a.json else []) + shapes))


main()
