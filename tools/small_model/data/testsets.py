"""Writes the held-out test sets to tests/data/eval, and reads them.

    python -m data.testsets       # needs `tokenizers`, for the lengths of the recall set

Questions come from phrasings, functions and operands that training never sees. One JSON object a line:

  question, answer          GSM8K's fields: the number after #### is what counts
  messages, tools, answer   a conversation whose next answer is asked for
  check                     how an answer is compared: number, text, contains, json, tools (answer: a list of {name, arguments}), none
  task, group, length       what tables are made by; length in tokens, for recall

A recall set shares its hay: a line {"text": NAME, "value": ...} defines it, and the content of a message may be a list whose members are
text or [NAME, begin, end], bytes of what was defined before; they are joined.
"""
import argparse
import json
from pathlib import Path

from . import arithmetic, chat, extract, filler, lists, recall, render, stories, tables, tools
from .draw import Draw

SEED = 71  # of the committed sets
FOLDER = Path(__file__).resolve().parents[3] / "tests" / "data" / "eval"
LENGTHS = (256, 512, 1024, 2048, 4096, 8192)


def unlike(seed, task, count, make, split="test"):
    """`count` different questions."""
    seen, found, index = set(), [], 0
    while len(found) < count:
        draw = Draw(seed, "test-" + task, index, split)
        item = make(draw)
        index += 1
        key = json.dumps(item)
        if key not in seen:
            seen.add(key)
            found.append(item)
    return found


def asked(messages):
    """A conversation without its last answer, in the wire's form."""
    render.finished(TEST, {"messages": messages})
    wire = []
    for m in messages[:-1]:
        m = {k: v for k, v in m.items() if not k.startswith("_") and k != "reasoning_content"}  # as clients send it back
        if "tool_calls" in m:
            m["tool_calls"] = [{**c, "function": {**c["function"], "arguments": json.dumps(c["function"]["arguments"])}}
                               for c in m["tool_calls"]]
        wire.append(m)
    return wire


TEST = Draw(SEED, "test", 0, "test")


def arithmetic_items(seed):
    def make(draw):
        question, _, result = arithmetic.problem(draw)
        return {"task": "arithmetic", "group": "new words" if draw.split == "test" else "new numbers",
                "question": render.with_articles(question), "answer": f"#### {result}"}
    return unlike(seed, "arithmetic", 120, make) + unlike(seed, "arithmetic", 80, make, "values")


def simple_items(seed, task, count, turn, check, answer=lambda text: text):
    def make(draw):
        messages = turn(draw)
        return {"task": task, "check": check, "messages": asked(messages), "answer": answer(messages[-1]["content"])}
    return unlike(seed, task, count, make)


def tool_items(seed):
    def calls(kind):
        def make(draw):
            offers = tools.offers_of(draw, draw.between(1, 4))
            messages = tools.turn(draw, offers, kind)
            item = {"task": "tools", "group": kind, "check": "tools", "messages": asked(messages[:2]),
                    "tools": [o.schema() for o in offers],
                    "answer": [{"name": c["function"]["name"], "arguments": c["function"]["arguments"]}
                               for c in messages[1].get("tool_calls", ())]}
            if kind == "none":
                item.update(check="text", answer=tools.NO_FUNCTION)
            return item
        return make

    def result(draw):
        offers = tools.offers_of(draw, draw.between(1, 4))
        messages = tools.turn(draw, offers, draw.choice(("single", "single", "parallel")))
        return {"task": "tools", "group": "result", "check": "text", "messages": asked(messages), "tools": [o.schema() for o in offers],
                "answer": render.with_articles(messages[-1]["content"])}

    return (unlike(seed, "tools-single", 64, calls("single")) + unlike(seed, "tools-parallel", 32, calls("parallel")) +
            unlike(seed, "tools-none", 16, calls("none")) + unlike(seed, "tools-result", 28, result))


def chat_items(seed):
    """Whole conversations in the words of tests, asked at their last turn."""
    def make(draw):
        messages = chat.conversation(draw)["messages"]
        return {"task": "chat", "check": "text", "messages": asked(messages), "answer": messages[-1]["content"]}

    def table(draw):
        question, _, value = tables.question(draw)
        return {"task": "chat", "group": "knowledge", "check": "contains", "messages": [{"role": "user", "content": question}],
                "answer": value}

    talks = [dict(item, group="conversation") for item in unlike(seed, "chat", 80, make)]
    return talks + unlike(seed, "chat-table", 40, table)


def recall_items(seed, per_length):
    from .tokenizer import Encoder
    encoder = Encoder()
    hays = {}
    for i in range(2):
        draws = [Draw(seed, "test-hay", i, split) for split in ("train", "test")]
        sentences = [render.with_articles(filler.sentence(draws[n % 4 == 0])) + (" " if n % 6 else "\n") for n in range(760)]
        hays[f"hay{i}"] = sentences
    items = [{"text": name, "value": "".join(sentences)} for name, sentences in hays.items()]
    for length in LENGTHS:
        items += unlike(seed, f"recall-{length}", per_length, lambda draw: recall_item(draw, length, hays, encoder))
    return items


def recall_item(draw, length, hays, encoder):
    """One question; the needles lie anywhere in a stretch of hay that begins anywhere."""
    name = draw.choice(("passkey", "code", "phone", "word"))
    kind = recall.KINDS[name]
    pairs = recall.needles_of(draw, kind, recall.needle_count(draw, name, length))
    facts = [render.with_articles(draw.phrase(kind.needle, k=k, v=v)) + " " for k, v in pairs]
    key, value = draw.choice(pairs)
    intro = draw.phrase(recall.INTROS) + "\n\n"
    question = "\n\n" + render.with_articles(draw.phrase(kind.question, k=key))
    hay_name = draw.choice(sorted(hays))
    sentences = hays[hay_name]
    room = length - 24 - sum(len(encoder.ids(t)) for t in [intro, question, *facts])  # 24: markup, the answer
    first = draw.randrange(len(sentences))
    taken = 0
    while room > 0 and taken < len(sentences):
        room -= len(encoder.ids(sentences[(first + taken) % len(sentences)].strip()))
        taken += 1
    taken = max(0, taken - 1)
    return {"task": "recall", "group": name, "length": length, "check": "text",
            "messages": [{"role": "user", "content": [intro, *woven(draw, facts, hay_name, sentences, first, taken), question]}],
            "answer": render.with_articles(kind.answer.format(k=key, v=value))}


def woven(draw, facts, hay_name, sentences, first, taken):
    """Pieces of hay with a fact between any two."""
    edges = [0]
    for s in sentences:
        edges.append(edges[-1] + len(s.encode()))
    places = sorted(draw.randint(0, taken) for _ in facts)
    at = 0
    for place, fact in zip(places + [taken], facts + [""]):
        begin, end = (first + at) % len(sentences), first + place
        if at < place:
            end_in = (end - 1) % len(sentences) + 1
            if end_in > begin:
                yield [hay_name, edges[begin], edges[end_in]]
            else:  # over the end of the hay
                yield [hay_name, edges[begin], edges[-1]]
                yield [hay_name, 0, edges[end_in]]
        if fact:
            yield fact
        at = place


SETS = {
    "arithmetic": arithmetic_items,
    "lists": lambda seed: simple_items(seed, "lists", 200, lists.turn, "text"),
    "json": lambda seed: simple_items(seed, "json", 200, extract.turn, "json", json.loads),
    "tools": tool_items,
    "copy": lambda seed: simple_items(seed, "copy", 60, lambda d: stories.turn(d, stories.copy), "text"),
    "story": lambda seed: simple_items(seed, "story", 40, lambda d: stories.turn(d, stories.story), "text"),
    "chat": chat_items,
    "recall": lambda seed: recall_items(seed, 56),
}


def load(path):
    """Questions of a file with `messages` (whose contents are whole text), `tools` or None, and the fields of the line."""
    texts, items = {}, []
    for line in Path(path).read_text().splitlines():
        item = json.loads(line)
        if "text" in item:
            texts[item["text"]] = item["value"].encode()
            continue
        if "question" in item:
            item.update(messages=[{"role": "user", "content": item["question"]}], check="number",
                        answer=item["answer"].rsplit("####", 1)[-1].strip())
        for m in item["messages"]:
            if isinstance(m.get("content"), list):
                m["content"] = "".join(p if isinstance(p, str) else texts[p[0]][p[1]:p[2]].decode() for p in m["content"])
            for call in m.get("tool_calls", ()):
                if isinstance(call["function"]["arguments"], str):
                    call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        items.append(item)
    return items


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--out", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, make in SETS.items():
        items = make(arguments.seed)
        path = arguments.out / f"{name}.jsonl"
        path.write_text("".join(json.dumps(item, ensure_ascii=False, separators=(",", ":")) + "\n" for item in items))
        print(f"{path.name}: {len(items)} lines, {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
