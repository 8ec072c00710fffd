"""Tells whether what a model wrote answers a question of a test set; `baton eval` compares the same way.

    answer = parsed(text)            # text: all that the model wrote behind <|assistant|><think>, markup included, stop token or not
    correct(item, answer)            # item: of testsets.load; None if the item is not scored
"""
import json
import re
from dataclasses import dataclass, field

NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
ARGUMENT = re.compile(r"<arg_key>(.*?)</arg_key><arg_value>(.*?)</arg_value>", re.DOTALL)


@dataclass
class Answer:
    content: str = ""
    calls: list = field(default_factory=list)  # (name, {argument: text})
    thought: bool = True  # whether the reasoning ended


def parsed(text):
    text = re.split(r"<\|(?:endoftext|user|observation)\|>", text, maxsplit=1)[0]
    _, end, rest = text.partition("</think>")
    if not end:
        return Answer(thought=False)
    calls = [(c.partition("<arg_key>")[0], dict(ARGUMENT.findall(c))) for c in CALL.findall(rest)]
    return Answer(CALL.sub("", rest).strip(), calls)


def number(text):
    found = NUMBER.findall(text)
    return float(found[-1].replace(",", "")) if found else None


def same_json(text, value):
    text = re.sub(r"^```(?:json)?\s*|\s*```$", "", text.strip())
    try:
        return json.loads(text) == value
    except ValueError:
        return False


def same_argument(text, value):
    """Text arguments come as they are, all others as JSON."""
    return text == value if isinstance(value, str) else same_json(text, value)


def same_call(call, expected):
    name, arguments = call
    return (name == expected["name"] and arguments.keys() == expected["arguments"].keys() and
            all(same_argument(arguments[k], v) for k, v in expected["arguments"].items()))


def same_calls(calls, expected):
    """In any order."""
    left = list(calls)
    for e in expected:
        found = next((c for c in left if same_call(c, e)), None)
        if found is None:
            return False
        left.remove(found)
    return not left


def correct(item, answer):
    check, want = item["check"], item["answer"]
    if check == "none":
        return None
    if not answer.thought:
        return False
    if check == "tools":
        return same_calls(answer.calls, want)
    if answer.calls:
        return False
    return {"number": lambda: number(answer.content) == float(str(want).replace(",", "")),
            "text": lambda: answer.content == str(want).strip(),
            "contains": lambda: str(want) in answer.content,
            "json": lambda: same_json(answer.content, want)}[check]()
