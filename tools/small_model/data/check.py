"""Checks that render.py writes what the chat template writes, and that the binary cuts it into the same ids.

    python -m data.check --baton build/release/bin/baton     # needs `tokenizers`
    python -m data.check --baton ... --no-ids                # the texts alone: plain Python
    python -m data.check --jinja                             # the texts by jinja2, which it needs

Every conversation of the sample and every question of the test sets is compared.
"""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from . import render, tasks, testsets

FOLDER = Path(__file__).parent / "tokenizer"


def conversations(count):
    """Of each task, whole ones; and what the test sets ask."""
    for task in tasks.TASK_NAMES:
        for index in range(count):
            yield f"{task} {index}", tasks.conversation(task, 3, index, longest=600)
    for path in sorted(testsets.FOLDER.glob("*.jsonl")):
        for number, item in enumerate(testsets.load(path)[::max(1, 200 // count)]):
            yield f"{path.stem} {number}", item


def plain(conversation):
    return [{k: v for k, v in m.items() if not k.startswith("_")} for m in conversation["messages"]]


def body(conversation):
    """As a request."""
    whole = conversation["messages"][-1]["role"] == "assistant"
    request = {"messages": plain(conversation), "add_generation_prompt": not whole}
    request.update({k: conversation[k] for k in ("tools", "reasoning_effort") if conversation.get(k)})
    return request, whole


def expected(conversation, whole):
    if not whole:
        return render.prompt(conversation)
    text = "".join(t for t, _ in render.pieces(conversation))
    return text.removesuffix("<|user|>")


def by_jinja():
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = lambda value, ensure_ascii=False: json.dumps(value, ensure_ascii=ensure_ascii)
    template = environment.from_string((FOLDER / "chat_template.jinja").read_text())
    return lambda request: (template.render(**request), None)


def by_baton(binary, ids):
    def ask(request):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(request, file)
            file.flush()
            # Trusted whole: markup within the sample's own assistant messages is meant.
            done = subprocess.run([binary, "render", "--model", FOLDER, "--messages", file.name, "--json", *(["--ids"] if ids else [])],
                                  capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr)
        answer = json.loads(done.stdout)
        return answer["text"], answer.get("ids")
    return ask


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--baton", help="the program")
    parser.add_argument("--no-ids", action="store_true")
    parser.add_argument("--jinja", action="store_true")
    parser.add_argument("--count", type=int, default=20, help="conversations of each task")
    arguments = parser.parse_args()
    if not arguments.baton and not arguments.jinja:
        parser.error("--baton or --jinja is needed")
    rendered = by_jinja() if arguments.jinja else by_baton(arguments.baton, not arguments.no_ids)
    encoder = None
    if arguments.baton and not arguments.no_ids:
        from .tokenizer import Encoder
        encoder = Encoder()
    compared = 0
    for name, conversation in conversations(arguments.count):
        request, whole = body(conversation)
        text, ids = rendered(request)
        want = expected(conversation, whole)
        if text != want:
            at = next(i for i, (a, b) in enumerate(zip(text + "\0", want + "\0")) if a != b)
            sys.exit(f"{name}: differs at character {at}: {text[at - 20:at + 40]!r}, not {want[at - 20:at + 40]!r}")
        if encoder:
            own = encoder.encode(conversation)[0].tolist()
            own = own[:-1] if whole else own + encoder.ids("<|assistant|>") + encoder.ids("<think>")
            if own != ids:
                sys.exit(f"{name}: the ids differ")
        compared += 1
    print(f"{compared} conversations are the same")


if __name__ == "__main__":
    main()
