"""Writes packed rows to a file, or measures how fast they come.

    python -m data.pack --seed 1 --rows 1000 --length 2048 --mix mid --out rows.npz
"""
import argparse
import time

import numpy as np

from .corpus import MIXES, Stream


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--mix", choices=sorted(MIXES), default="mid")
    parser.add_argument("--out", help="npz with tokens, weight, doc_id, each [rows, length]; without it only figures are printed")
    arguments = parser.parse_args()
    stream = Stream(arguments.seed, arguments.length, arguments.mix)
    start = time.perf_counter()
    rows = [next(stream) for _ in range(arguments.rows)]
    seconds = time.perf_counter() - start
    tokens, weight, doc_id = (np.stack(part) for part in zip(*rows))
    if arguments.out:
        np.savez_compressed(arguments.out, tokens=tokens, weight=weight, doc_id=doc_id)
    print(f"{tokens.size / seconds:,.0f} tokens/s, {np.mean(doc_id < 0):.1%} padding, {np.mean(weight == 1):.1%} of tokens are answers, "
          f"{np.mean(doc_id.max(axis=1) + 1):.1f} conversations a row")
    total = sum(stream.made.values())
    print("shares:", ", ".join(f"{task} {made / total:.1%} ({stream.index[task]})" for task, made in stream.made.items()))


if __name__ == "__main__":
    main()
