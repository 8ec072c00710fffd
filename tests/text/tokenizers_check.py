#!/usr/bin/env python3
"""Compares encoding with Hugging Face `tokenizers` on text in many scripts, on random byte strings, and with components of every kind.

tests/text/tokenizers_check.py --encode-records BINARY [--data FOLDER] [--megabytes 10] [--strings 10000] [--seed 1]

Exit code 77 (skipped) where Python has no `tokenizers`; scripts/setup --python installs it into build/venv.
"""

import argparse
import gzip
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# First and last code point of what text is made of; unassigned ones are left out below.
SCRIPTS = [(0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF), (0x530, 0x58F), (0x590, 0x5FF), (0x600, 0x6FF),
           (0x900, 0x97F), (0xE00, 0xE7F), (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2150, 0x218F),
           (0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xF900, 0xFAFF), (0xFF00, 0xFFEF),
           (0x1F300, 0x1F6FF), (0x20000, 0x200FF), (0x0, 0x20)]
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps) + [BYTE_LEVEL]}


def variants():
    """Pre-tokenizers and normalizers that are no part of the recorded tokenizers."""
    regex = lambda r: {"Regex": r}
    deepseek = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|"
                r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    o200k = "|".join([
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
    cl100k = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
    pre = {
        "gpt2": {**BYTE_LEVEL, "use_regex": True},
        "gpt2-prefix": {**BYTE_LEVEL, "use_regex": True, "add_prefix_space": True},
        "deepseek": sequence(split(regex(r"\p{N}{1,3}")), split(regex("[一-龥぀-ゟ゠-ヿ]+")), split(regex(deepseek))),
        "o200k": sequence(split(regex(o200k))),
        "cl100k": sequence(split(regex(cl100k))),
        "digits": sequence({"type": "Digits", "individual_digits": True}, {"type": "Punctuation", "behavior": "MergedWithPrevious"}),
        "digit-runs": sequence({"type": "Digits", "individual_digits": False}, {"type": "Punctuation", "behavior": "Contiguous"}),
        "white-space": sequence({"type": "WhitespaceSplit"}, {"type": "Punctuation", "behavior": "MergedWithNext"}),
        "words": sequence({"type": "Whitespace"}),
        "string": sequence(split({"String": " "}, "MergedWithNext"),
                           split({"String": "e"}, "MergedWithPrevious"), split({"String": "an"}, "Removed")),
        "inverted": sequence(split(regex(r"\p{L}+|\d+"), "Removed", True)),
        "delimiter": sequence({"type": "CharDelimiterSplit", "delimiter": "-"}, split(regex(r"\S*"), "Contiguous")),
    }
    lists = {
        "nfd": {"type": "NFD"}, "nfkc": {"type": "NFKC"}, "nfkd": {"type": "NFKD"}, "lower": {"type": "Lowercase"},
        "accents": {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "StripAccents"},
                                                        {"type": "Strip", "strip_left": True, "strip_right": True}]},
        "replace": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "x "},
                                                        {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
                                                        {"type": "Replace", "pattern": {"String": "a"}, "content": "bb"}]},
    }
    for name, value in pre.items():
        yield f"pre-tokenizer {name}", {"pre_tokenizer": value}
    for name, value in lists.items():
        yield f"normalizer {name}", {"normalizer": value}


def mixed_text(rng, sample, size):
    """Text of `size` bytes: stretches of the sample, of single scripts, of everything mixed."""
    parts, have = [], 0
    while have < size:
        kind = rng.random()
        if kind < 0.5:
            at = rng.randrange(len(sample))
            part = sample[at:at + rng.randrange(2000)]
        else:
            pool = [rng.choice(SCRIPTS)] if kind < 0.9 else SCRIPTS
            part = "".join(chr(rng.randint(*rng.choice(pool))) if rng.random() < 0.85 else rng.choice(" \n'\t.1a")
                           for _ in range(rng.randrange(200)))
        parts.append(part)
        have += len(part.encode())
    return "".join(parts)


def random_bytes(rng):
    size = rng.randrange(1, 64)
    if rng.random() < 0.5:
        return rng.randbytes(size)
    pieces = ["<|user|>", "<think>", " ", "\n", "'s", "é", "日本", "e\u0301", "123", "Baton", " two words "]
    text = "".join(rng.choice(pieces + [chr(rng.randint(*rng.choice(SCRIPTS)))]) for _ in range(size))
    data = bytearray(text.encode())
    for _ in range(rng.randrange(4)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def encode_here(binary, tokenizer, records):
    with tempfile.TemporaryDirectory() as folder:
        source, target = pathlib.Path(folder, "records"), pathlib.Path(folder, "ids")
        source.write_bytes(b"".join(struct.pack("<I", len(r)) + r for r in records))
        subprocess.run([binary, tokenizer, source, target], check=True)
        data = target.read_bytes()
    lists, at = [], 0
    while at < len(data):
        (count,) = struct.unpack_from("<I", data, at)
        lists.append(list(struct.unpack_from(f"<{count}i", data, at + 4)))
        at += 4 + 4 * count
    return lists


def compare(name, binary, path, records, reference):
    ours = encode_here(binary, path, records)
    differ = 0
    for record, ids in zip(records, ours):
        text = record.decode(errors="replace")
        wanted = reference.encode(text, add_special_tokens=False).ids
        if ids != wanted:
            differ += 1
            if differ <= 3:
                first = next((i for i, (a, b) in enumerate(zip(ids, wanted)) if a != b), min(len(ids), len(wanted)))
                print(f"  {text[:60]!r}: differs from id {first} on: {ids[first:first + 6]}, expected {wanted[first:first + 6]};"
                      f" the text there: {reference.decode(wanted[max(0, first - 3):first + 3])!r}")
    print(f"{name:<40}{len(records):>8} texts {sum(map(len, records)):>10} bytes {differ:>6} differ")
    return differ


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encode-records", required=True, help="the program of that name")
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "tests/data/tokenizers")
    parser.add_argument("--megabytes", type=float, default=10)
    parser.add_argument("--strings", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    try:
        from tokenizers import Tokenizer
    except ImportError:
        print("skipped: this Python has no tokenizers")
        return 77

    rng = random.Random(arguments.seed)
    print(f"seed {arguments.seed}")
    sample = gzip.decompress((arguments.data / "corpus-sample.txt.gz").read_bytes()).decode()
    text = mixed_text(rng, sample, int(arguments.megabytes * 1e6)).encode()
    strings = [random_bytes(rng) for _ in range(arguments.strings)]
    # Long pieces, so that one difference does not hide the others.
    pieces = [piece.encode() for piece in (text[i:i + 100_000].decode(errors="ignore") for i in range(0, len(text), 100_000))]
    differ = 0
    for name in ("glm-like", "llama3-like", "qwen-like"):
        path = arguments.data / f"{name}.json"
        reference = Tokenizer.from_file(str(path))
        reference_whole = [text]
        differ += compare(f"{name}, whole text", arguments.encode_records, path, reference_whole, reference)
        differ += compare(f"{name}, pieces", arguments.encode_records, path, pieces, reference)
        differ += compare(f"{name}, random bytes", arguments.encode_records, path, strings, reference)
    few = strings[:2000] + pieces[:10]
    base = json.loads((arguments.data / "glm-like.json").read_text())
    for name, changes in variants():
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "tokenizer.json")
            path.write_text(json.dumps({**base, **changes}))
            differ += compare(name, arguments.encode_records, path, few, Tokenizer.from_file(str(path)))
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
