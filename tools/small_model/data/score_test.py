"""Scoring and split, in plain Python: python tools/small_model/data/score_test.py"""
import json
import re
import sys
import unittest
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # the package's folder, instead of this file's

from data import arithmetic, chat, extract, lists, recall, render, tasks, testsets  # noqa: E402
from data.draw import Draw, Phrasings  # noqa: E402
from data.score import correct, parsed  # noqa: E402

PHRASINGS = [p for p in (*vars(lists).values(), *vars(chat).values(), *arithmetic.STORIES.values(), *arithmetic.PLAIN.values(),
                         *(texts for _, texts in extract.KINDS.values()), *(k.question for k in recall.KINDS.values()))
             if isinstance(p, Phrasings)]


def written(message):
    """What the model would have written to say `message`."""
    return "".join(render.assistant_pieces(message)) + "<|user|>"


class TestScore(unittest.TestCase):
    def test_right_answers_of_the_sets_are_right(self):
        for path in testsets.FOLDER.glob("*.jsonl"):
            for item in testsets.load(path):
                if item["check"] == "tools":
                    message = {"content": "", "tool_calls": [{"function": c} for c in item["answer"]]}
                else:
                    text = json.dumps(item["answer"]) if item["check"] == "json" else str(item["answer"])
                    message = {"content": f"It is {text}." if item["check"] in ("number", "contains") else text}
                self.assertTrue(correct(item, parsed(written(message))), item)

    def test_wrong_answers_are_wrong(self):
        call = [{"name": "f", "arguments": {"a": "1", "b": 2}}]
        cases = (({"check": "number", "answer": "12"}, "</think>The answer is 13.<|user|>"),
                 ({"check": "number", "answer": "12"}, "the answer is 12"),  # still thinking
                 ({"check": "number", "answer": "12"}, "</think>"),
                 ({"check": "text", "answer": "a, b"}, "</think>a, c"),
                 ({"check": "json", "answer": {"a": 1}}, '</think>{"a": 1, "b": 2}'),
                 ({"check": "json", "answer": {"a": 1}}, '</think>{"a": '),
                 ({"check": "tools", "answer": call}, "</think><tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>"),
                 ({"check": "text", "answer": ""}, "</think><tool_call>f</tool_call>"))
        for item, text in cases:
            self.assertFalse(correct(item, parsed(text)), (item, text))
        self.assertIsNone(correct({"check": "none", "answer": ""}, parsed("</think>x")))

    def test_calls_in_any_order(self):
        calls = [{"name": "f", "arguments": {"a": "x"}}, {"name": "g", "arguments": {"n": 3, "on": True}}]
        text = written({"content": "", "tool_calls": [{"function": c} for c in reversed(calls)]})
        self.assertTrue(correct({"check": "tools", "answer": calls}, parsed(text)))


class TestSplit(unittest.TestCase):
    def test_no_question_of_the_sets_is_trained_on(self):
        """A sample of training, wide enough to hold each phrasing many times, asks nothing that the sets ask."""
        asked = {item["messages"][-1]["content"] for path in testsets.FOLDER.glob("*.jsonl") for item in testsets.load(path)}
        asked = {q for q in asked if not q.startswith("{")}
        for task in tasks.TASK_NAMES:
            for index in range(400):
                for m in tasks.conversation(task, 11, index, longest=300)["messages"]:
                    if m["role"] == "user":
                        self.assertNotIn(m["content"], asked)

    def test_loosened_phrasings_keep_their_slots_and_are_no_test_phrasings(self):
        for index in range(3000):
            draw = Draw(5, "loosened", index)
            choices = draw.choice(PHRASINGS)
            text = draw.choice(choices.train)
            loosened = draw.loosened(text, choices.test)
            self.assertEqual(re.findall(r"{\w+}", loosened), re.findall(r"{\w+}", text))
            self.assertNotIn(loosened, choices.test)


if __name__ == "__main__":
    unittest.main()
