#!/usr/bin/env python3
"""Encoding speed beside Hugging Face `tokenizers` and `tiktoken`, in one run, on one core, on English, Chinese and code.

build/venv/bin/python bench/tokenizer_peers.py --encode-records build/release/bin/encode_records [--tokenizer FILE] [--megabytes 8]

Every library gets the same tokenizer and the same texts, whole and cut to the size of a message; ids are compared. Text comes from
this machine: English from the documentation strings of Python and from licences, code from Python's library, Chinese from the sample in
tests/data (repeated), or from the files given.
"""

import argparse
import ast
import gzip
import json
import os
import pathlib
import statistics
import struct
import subprocess
import sysconfig
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
ROOT = pathlib.Path(__file__).resolve().parents[1]
DATA = ROOT / "tests/data/tokenizers"
STDLIB = pathlib.Path(sysconfig.get_paths()["stdlib"])


def library_files():
    return sorted(p for p in STDLIB.rglob("*.py") if "site-packages" not in p.parts and "pydoc_data" not in p.parts)


def code(size):
    text = ""
    for path in library_files():
        text += path.read_text(errors="replace")
        if len(text) > size:
            break
    return text


def english(size):
    parts = [p.read_text(errors="replace") for p in sorted(pathlib.Path("/usr/share/common-licenses").glob("*")) if p.is_file()]
    have = sum(map(len, parts))
    for path in library_files():
        try:
            tree = ast.parse(path.read_text(errors="replace"))
        except (SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)) and (text := ast.get_docstring(node)):
                parts.append(text)
                have += len(text)
        if have > size:
            break
    return "\n".join(parts)


def chinese(size):
    sample = gzip.decompress((DATA / "corpus-sample.txt.gz").read_bytes()).decode()
    return "\n".join(line for line in sample.split("\n") if sum("\u4e00" <= c <= "\u9fff" for c in line) * 2 > len(line))


def filled(text, size):
    """Repeated up to `size` bytes."""
    data = text.encode()
    return (data * (size // max(1, len(data)) + 1))[:size].decode(errors="ignore")


def as_records(text, chunk):
    if chunk is None:
        return [text]
    return [text[i:i + chunk] for i in range(0, len(text), chunk)]


def tiktoken_of(path):
    """The same merges for tiktoken: its ranks are the ids, which a trained vocabulary numbers in the order of its merges."""
    import tiktoken
    spec = json.loads(path.read_text())
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    bytes_of = {chr(b): b for b in printable} | {chr(0x100 + i): b for i, b in enumerate(others)}
    ranks = {bytes(bytes_of[c] for c in token): i for token, i in spec["model"]["vocab"].items()}
    pattern = spec["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
    return tiktoken.Encoding("same", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})


def best(run, rounds):
    run()
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def ours(binary, tokenizer, records, rounds):
    with tempfile.TemporaryDirectory() as folder:
        source, target = pathlib.Path(folder, "records"), pathlib.Path(folder, "ids")
        source.write_bytes(b"".join(struct.pack("<I", len(r.encode())) + r.encode() for r in records))
        command = [binary, tokenizer, source, target, "--repeat", str(rounds)]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        data, lists, at = target.read_bytes(), [], 0
    while at < len(data):
        (count,) = struct.unpack_from("<I", data, at)
        lists.append(list(struct.unpack_from(f"<{count}i", data, at + 4)))
        at += 4 + 4 * count
    return statistics.median(map(float, out.split())), lists


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encode-records", required=True, help="the program of that name")
    parser.add_argument("--tokenizer", type=pathlib.Path, default=DATA / "glm-like.json")
    parser.add_argument("--megabytes", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    for name in ("english", "chinese", "code"):
        parser.add_argument(f"--{name}", type=pathlib.Path, help="take the text from this file")
    arguments = parser.parse_args()
    from tokenizers import Tokenizer
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

    reference, tik = Tokenizer.from_file(str(arguments.tokenizer)), tiktoken_of(arguments.tokenizer)
    size = int(arguments.megabytes * 1e6)
    print(f"{'MB/s, one core':<30}{'baton':>8}{'tokenizers':>12}{'tiktoken':>10}{'x faster one':>14}  ids")
    for name, make in (("english", english), ("chinese", chinese), ("code", code)):
        given = getattr(arguments, name)
        text = filled(given.read_text() if given else make(size), size)
        for how, chunk in (("whole", None), ("by 2000 characters", 2000)):
            records = as_records(text, chunk)
            megabytes = sum(len(r.encode()) for r in records) / 1e6
            baton, ids = ours(arguments.encode_records, arguments.tokenizer, records, arguments.rounds)
            hf = best(lambda: [reference.encode(r, add_special_tokens=False) for r in records], arguments.rounds)
            tk = best(lambda: [tik.encode_ordinary(r) for r in records], arguments.rounds)
            equal = all(reference.encode(r, add_special_tokens=False).ids == i for r, i in zip(records, ids))
            print(f"{name + ', ' + how:<30}{megabytes / baton:>8.1f}{megabytes / hf:>12.1f}{megabytes / tk:>10.1f}"
                  f"{min(hf, tk) / baton:>14.1f}  {'equal' if equal else 'DIFFERENT'}", flush=True)


if __name__ == "__main__":
    main()
