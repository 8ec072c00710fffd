#!/usr/bin/env python3
"""Holds the answers in tests/data/api against the types of the official clients of OpenAI and Anthropic.

    build/clients/bin/python tests/api/shapes_check.py [FOLDER]

Every answer and every event has to be valid as its type, and every field that a type requires has to be there: the clients themselves do
not check that. Needs the packages openai and anthropic; exit 77 without them.
"""

import json
import pathlib
import sys

try:
    import anthropic.types as anthropic_types
    from openai.types import Completion, Model
    from openai.types.chat import ChatCompletion, ChatCompletionChunk
    from openai.types.responses import Response, ResponseStreamEvent
    from pydantic import TypeAdapter
except ImportError as missing:
    print(f"skipped: {missing}; scripts/setup --python installs the packages of developers")
    sys.exit(77)


def events(text):
    """(name, data) of each event; the name is None where there is none."""
    assert text.endswith("\n\n"), "a stream ends with an empty line"
    for block in text[:-2].split("\n\n"):
        lines = block.split("\n")
        name = lines[0][len("event: "):] if lines[0].startswith("event: ") else None
        data = lines[1 if name else 0]
        assert data.startswith("data: ") and len(lines) == (2 if name else 1), block
        yield name, data[len("data: "):]


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent / "data" / "api"
    checked = 0

    def check(kind, value, where):
        nonlocal checked
        try:
            TypeAdapter(kind).validate_python(value)
        except Exception as wrong:
            sys.exit(f"{where}: {wrong}\n{json.dumps(value)[:2000]}")
        checked += 1

    def whole(name, kind):
        check(kind, json.loads((folder / name).read_text()), name)

    def stream(name, kind, done):
        items = list(events((folder / name).read_text()))
        if done:
            assert items.pop()[1] == "[DONE]", f"{name}: no [DONE]"
        for i, (event, data) in enumerate(items):
            value = json.loads(data)
            if event is not None:
                assert value["type"] == event, f"{name}: event {i} is called {event}"
            if event != "ping":
                check(kind, value, f"{name}, event {i}")

    whole("chat.json", ChatCompletion)
    stream("chat.sse", ChatCompletionChunk, done=True)
    whole("completion.json", Completion)
    whole("responses.json", Response)
    stream("responses.sse", ResponseStreamEvent, done=False)
    stream("responses_failed.sse", ResponseStreamEvent, done=False)
    whole("messages.json", anthropic_types.Message)
    stream("messages.sse", anthropic_types.RawMessageStreamEvent, done=False)
    whole("count_tokens.json", anthropic_types.MessageTokensCount)
    for model in json.loads((folder / "models.json").read_text())["data"]:
        check(Model, model, "models.json")
        check(anthropic_types.ModelInfo, model, "models.json")
    print(f"{checked} answers and events have the shapes of the official clients")


main()
