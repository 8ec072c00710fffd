"""Conversations with functions: one call, several at once, answers from results, and requests that no function fits."""
import json
import re

from .draw import phrasings
from .tool_catalog import FUNCTIONS
from .words import VOCABULARY

NO_FUNCTION = "I have no function for that."


# Names may be made of these; none that tests use is made.
PARTS = sorted(set(VOCABULARY) | {w.lower() for f in FUNCTIONS.values() for text in (f.about, *f.asks.train)
                                  for w in re.findall(r"(?<!\{)\b[A-Za-z]{2,}\b(?!\})", text)})
TEST_NAMES = {n for f in FUNCTIONS.values() for p in (f, *f.parameters.values()) for n in p.names.test}


def invented(draw, shared):
    """A name that says nothing, so that only the description tells and the name has to be copied. Names of one list often share a part."""
    while True:
        name = draw.identifier(PARTS)
        if shared and draw.chance(0.6):
            name = f"{name}_{shared}" if draw.chance(0.7) else f"{shared}_{name}"
        if name not in TEST_NAMES:
            return name


def function_name(draw, names, shared):
    return invented(draw, shared) if draw.split == "train" and draw.chance(0.6) else draw.phrase(names)


def parameter_name(draw, names, shared):
    return invented(draw, shared) if draw.split == "train" and draw.chance(0.5) else draw.phrase(names)


class Offer:
    """A function as one conversation knows it: with its names chosen."""

    def __init__(self, draw, key, shared=("", "")):
        self.function = FUNCTIONS[key]
        self.name = function_name(draw, self.function.names, shared[0])
        self.names = {}
        for slot, parameter in self.function.parameters.items():
            name = parameter_name(draw, parameter.names, shared[1])
            while name in self.names.values():
                name = parameter_name(draw, parameter.names, shared[1])
            self.names[slot] = name

    def schema(self):
        properties = {self.names[s]: {"type": p.kind, "description": p.about} for s, p in self.function.parameters.items()}
        return {
            "type": "function", "function": {
                "name": self.name, "description": self.function.about,
                "parameters": {"type": "object", "properties": properties, "required": list(properties)}
            }
        }


class Call:
    """A request, the call that it needs, what the function returns, and the answer made of it."""

    def __init__(self, draw, offer):
        function = offer.function
        values = {s: p.make(draw) for s, p in function.parameters.items()}
        shown = {s: {True: "on", False: "off"}[v] if isinstance(v, bool) else v for s, v in values.items()}
        self.ask = draw.asked(function.asks, **shown)
        self.name = offer.name
        self.arguments = {offer.names[s]: v for s, v in values.items()}
        self.result = function.result(draw, values)
        self.answer = function.answer.format(**shown, **self.result)

    def message_part(self, number):
        return {"id": f"call_{number}", "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


def call_turn(calls, ask):
    """The request, the calls, their results, the answer."""
    names = " and ".join(f'"{c.name}"' for c in calls)  # in quotes, as in the schema: a name is the same tokens in both
    messages = [{"role": "user", "content": ask}, {
        "role": "assistant", "reasoning_content": f"I call {names}.", "content": "",
        "tool_calls": [c.message_part(i) for i, c in enumerate(calls, 1)]
    }]
    messages += [{"role": "tool", "tool_call_id": f"call_{i}", "content": json.dumps(c.result)} for i, c in enumerate(calls, 1)]
    return messages + [{"role": "assistant", "content": " ".join(c.answer for c in calls)}]


def joined(asks):
    return " ".join(a if a.endswith((".", "?", "!")) else a + "." for a in asks)


def several(draw, offers):
    """Two or three calls at once, of one function or of different ones."""
    if len(offers) > 1 and draw.chance(0.6):
        chosen = draw.sample(offers, 2)
    else:
        chosen = [draw.choice(offers)] * draw.choice((2, 2, 3))
    return [Call(draw, o) for o in chosen]


def offers_of(draw, count):
    """Functions whose names differ. Some parameters' names are shared; that is as in real tool lists."""
    train = draw.split == "train"
    while True:
        shared = [draw.strange(PARTS) if train and draw.chance(p) else "" for p in (0.4, 0.2)]
        offers = [Offer(draw, k, shared) for k in draw.sample(list(FUNCTIONS), count)]
        if len({o.name for o in offers}) == count:
            return offers


def none_turn(draw, offers):
    """A request for a function that is not offered."""
    offered = {id(o.function) for o in offers}
    others = [k for k, f in FUNCTIONS.items() if id(f) not in offered and k not in ("forecast", "weather", "price", "stock", "add")]
    return [{"role": "user", "content": Call(draw, Offer(draw, draw.choice(others))).ask},
            {"role": "assistant", "reasoning_content": "No function fits.", "content": NO_FUNCTION}]


def turn(draw, offers, kind):
    if kind == "none":
        return none_turn(draw, offers)
    calls = several(draw, offers) if kind == "parallel" else [Call(draw, draw.choice(offers))]
    return call_turn(calls, joined(c.ask for c in calls) if kind == "parallel" else calls[0].ask)


SYSTEMS = phrasings("You can use functions.",
                    "You are a helpful assistant with functions.",
                    "Use the functions when they help.",
                    test=("You are an assistant that can call functions.", ))


def conversation(draw, kinds=("single", "single", "parallel", "none")):
    offers = offers_of(draw, draw.between(1, 4))
    messages = [{"role": "system", "content": draw.phrase(SYSTEMS)}] if draw.chance(0.3) else []
    for _ in range(1 if draw.split != "train" else draw.between(1, 3)):
        messages += turn(draw, offers, draw.choice(kinds))
    return {"messages": messages, "tools": [o.schema() for o in offers]}
