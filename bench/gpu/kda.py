#!/usr/bin/env python3
"""Runs the KDA harness over the shapes of bench/shapes.json. usage: kda.py HARNESS [--json FILE]"""
import argparse
import json
import pathlib
import subprocess
import sys


def main():
    p = argparse.ArgumentParser()
    p.add_argument("harness")
    p.add_argument("--json")
    a = p.parse_args()
    s = json.loads((pathlib.Path(__file__).resolve().parents[1] / "shapes.json").read_text())
    shapes = []
    for state in ("bf16", "fp32"):
        for rows in s["decode_rows"]:
            requests = max(1, rows // s["ranks"] // 8)
            shapes.append(f"{requests}:8:8:fused:{state}")
        full = max(s["decode_rows"]) // s["ranks"] // 8
        shapes += [f"{full}:8:8:fused:{state}:memory", f"{full}:8:5:fused:{state}", f"{full}:8:8:apart:{state}", f"{full}:8:8:fold:{state}",
                   f"{full}:8:8:verify:{state}", f"{full}:1:1:fused:{state}"]
        rows = s["prefill_rows_per_rank"]
        shapes += [f"chunk:{rows}:{state}", f"chunk:{rows // 8}:{state}"]
    command = [a.harness, "time", "--layers", str(s["model"]["kda_layers"]), "--heads", str(s["model"]["kda_heads"])]
    sys.exit(subprocess.call(command + (["--json", a.json] if a.json else []) + shapes))


main()
