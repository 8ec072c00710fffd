#!/usr/bin/env python3
"""Puts a model folder together that a server can serve: a small checkpoint, a tokenizer that fits its vocabulary, a chat template.

tests/server/compose_model.py OUT [--checkpoint FOLDER] [--template FILE]

The tokenizer has one token for each byte and the special tokens of GLM behind them, so that 384 ids are enough. Nothing is copied: OUT has
links to the checkpoint's files.
"""
import argparse
import json
import os
import pathlib

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
SPECIAL = """<|endoftext|> [MASK] [gMASK] [sMASK] <sop> <eop> <|system|> <|user|> <|assistant|> <|observation|> <|begin_of_image|>
<|end_of_image|> <|begin_of_video|> <|end_of_video|> <|image|> <|video|>""".split()
MARKUP = "<think> </think> <tool_call> </tool_call> <tool_response> </tool_response> <arg_key> </arg_key> <arg_value> </arg_value>".split()


def byte_alphabet():
    """GPT-2's table: the character that stands for each byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {b: chr(b) for b in printable} | {b: chr(0x100 + i) for i, b in enumerate(others)}


def tokenizer():
    alphabet = byte_alphabet()
    added = [{"id": 256 + i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": text in SPECIAL} for i, text in enumerate(SPECIAL + MARKUP)]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {alphabet[b]: b for b in range(256)}, "merges": []},
    }


def compose(out, checkpoint, template):
    out.mkdir(parents=True, exist_ok=True)
    for file in checkpoint.iterdir():
        if file.name.startswith("golden"):
            continue
        link = out / file.name
        if link.is_symlink() or link.exists():
            link.unlink()
        os.symlink(file.resolve(), link)
    (out / "tokenizer.json").write_text(json.dumps(tokenizer()), encoding="utf-8")
    (out / "chat_template.jinja").write_text(template.read_text(encoding="utf-8"), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--checkpoint", type=pathlib.Path, default=DATA / "golden" / "small-bf16")
    parser.add_argument("--template", type=pathlib.Path, default=DATA / "chat" / "templates" / "glm.jinja")
    arguments = parser.parse_args()
    compose(arguments.out, arguments.checkpoint, arguments.template)


if __name__ == "__main__":
    main()
