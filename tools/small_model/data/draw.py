"""Random choices of one document, and phrasings of which some are kept for tests.

Everything a document says follows from (seed, task, index, split): the same four give the same document in any process.
"""
import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Phrasings:
    """Ways to say one thing. Training draws from `train` only; tests draw from `test`, and from `train` where there is nothing else."""
    train: tuple
    test: tuple = ()

    def __post_init__(self):
        assert self.train and not set(self.train) & set(self.test), "a phrasing is either for training or for tests"


def phrasings(*train, test=()):
    return Phrasings(tuple(train), tuple(test))


class Draw(random.Random):
    """A stream of choices. `split` is "train", "test" (phrasings kept for tests) or "values" (known phrasings, values kept for tests)."""

    def __new__(cls, *_args, **_keywords):
        return super().__new__(cls)

    def __init__(self, seed, task, index, split="train"):
        super().__init__(f"{seed}/{task}/{index}/{split}")
        self.split = split

    def phrase(self, choices, **slots):
        options = choices.test if self.split == "test" and choices.test else choices.train
        text = self.choice(options)
        return text.format(**slots) if slots else text

    def chance(self, probability):
        return self.random() < probability

    def between(self, low, high):
        return self.randint(low, high)

    def code(self, digits):
        return "".join(self.choice("0123456789") for _ in range(digits))
