"""Random choices of one document, and phrasings of which some are kept for tests.

Everything a document says follows from (seed, task, index, split): the same four give the same document in any process.
"""
import random
import re
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


REQUESTS = ("{}.", "Please {}.", "Could you {}?", "Can you {}?", "I need you to {}.", "I want you to {}.", "Now {}.", "Would you {}?",
            "Can you please {}?", "Kindly {}.", "Your task: {}.", "Help me to {}.", "I would like you to {}.")


# What people put before and behind what they want, and between its words: it changes nothing.
OPENINGS = ("Hello! ", "Hi! ", "Hi there. ", "Hey, ", "OK, ", "Well, ", "So, ", "Next: ", "Question: ", "Quick question: ", "Listen: ",
            "One more thing. ", "Now, ", "And then: ", "Good. ", "Fine. ", "Another one: ", "Here is a task. ", "Let me ask this. ",
            "I have a request. ", "Good day. ", "By the way, ", "Thanks. ", "Let us see. ", "First, ", "This is for you: ", "Again: ")
CLOSINGS = (" Thanks!", " Thank you.", " Take your time.", " That is all.", " I need it soon.", " It is important.", " I am curious.",
            " Thanks in advance.", " Be quick.", " I am waiting.", " Nothing else.", " That would help me.")
FILLERS = ("just", "now", "kindly", "please", "really", "quickly", "then", "simply", "also", "again", "today", "here", "perhaps", "exactly",
           "once", "actually", "still", "surely")
DISPENSABLE = frozenset("the a an of please that is me there are do does".split())

ORDERS = frozenset("Add Book Change Check Convert Explain Find Get Give Look Make Remind Reserve Say Send Set Show Switch Talk Tell Text "
                   "Translate Turn Wake Write".split())


def requests(*actions, test=()):
    """Every action ("sort these numbers: {l}") asked in every way, as far as tests do not ask it so. What the action is about may stand
    behind it, as given, or in front."""
    train = []
    for action in actions:
        body, colon, subject = re.match(r"(.*?)(?:(: )(\{\w\}))?$", action, re.DOTALL).groups()
        for request in REQUESTS:
            made = request.format(body)
            made = made[0].upper() + made[1:]
            if not colon:
                train.append(made)
                continue
            train += [(made[:-1] if made[-1] == "." else made) + end + subject
                      for end in ((": ", ":\n", " - ") if made[-1] == "." else (" ", "\n"))]
            train.append(f"{subject}\n{made}")
    return Phrasings(tuple(t for t in dict.fromkeys(train) if t not in test), tuple(test))


def either(first, *others):
    """The phrasings of all of them."""
    test = tuple(t for p in (first, *others) for t in p.test)
    return Phrasings(tuple(dict.fromkeys(t for p in (first, *others) for t in p.train if t not in test)), test)


ONSETS = "b c d f g h j k l m n p r s t v w z br ch cl dr fl gr pl pr sh sl sp st th tr".split()
VOWELS = "a e i o u ai ea ee io oo ou".split()
CODAS = "b d ck g k l m n nd ng nt p r rd rt s st t x".split()


class Draw(random.Random):
    """A stream of choices. `split` is "train", "test" (phrasings kept for tests) or "values" (known phrasings, values kept for tests)."""

    def __new__(cls, *_args, **_keywords):
        return super().__new__(cls)

    def __init__(self, seed, task, index, split="train"):
        super().__init__(f"{seed}/{task}/{index}/{split}")
        self.split = split

    def phrase(self, choices, **slots):
        options = choices.test if self.split == "test" and choices.test else choices.train
        text = self.loosened(self.choice(options), choices.test)
        return text.format(**slots) if slots else text

    def asked(self, choices, **slots):
        """As phrase(); but half of the orders among training's phrasings come in other clothes, as far as tests do not wear them."""
        text = self.choice(choices.test if self.split == "test" and choices.test else choices.train)
        if self.split == "train" and text.split()[0] in ORDERS and self.chance(0.5):
            made = self.choice(REQUESTS).format(text[0].lower() + text[1:].rstrip("."))
            made = made[0].upper() + made[1:]
            made = made if text[-1] == "." else made[:-1]  # what ends with a name or a message goes on ending with it
            text = text if made in choices.test else made
        text = self.loosened(text, choices.test)
        return text.format(**slots) if slots else text

    def loosened(self, text, tests=()):
        """In training, often with words more or less that do not matter, so that what matters is learned. Slots keep their neighbours."""
        words = text.split(" ")
        if self.split != "train" or len(words) < 2 or self.chance(0.55):
            return text
        for _ in range(self.choice((0, 1, 1, 2, 3))):
            at = self.randrange(len(words))
            before, after = words[at - 1] if at else "", words[at]
            if not at or not before.isalpha() or not after.isalpha() or any(":" in w for w in words[:at]):
                continue
            if after in DISPENSABLE and self.chance(0.4) and (at + 1 == len(words) or words[at + 1].isalpha()):
                del words[at]
            else:
                words.insert(at, self.choice(FILLERS) if self.chance(0.8) else self.syllables(1, 2))
        made = " ".join(words)
        if self.chance(0.4):
            opening = self.choice(OPENINGS) if self.chance(0.8) else self.syllables(1, 3).capitalize() + self.choice((", ", ". ", ": "))
            if made[0].isupper() and made[1:2].islower() and opening[-2] != "." and self.chance(0.5):
                made = made[0].lower() + made[1:]
            made = opening + made
        if made[-1] in ".?!" and self.chance(0.3):
            made += self.choice(CLOSINGS)
        return text if made in tests else made

    def chance(self, probability):
        return self.random() < probability

    def between(self, low, high):
        return self.randint(low, high)

    def syllables(self, low=1, high=4):
        """A word that does not exist, so that it can only be copied."""
        text = ""
        for _ in range(self.between(low, high)):
            text += self.choice(ONSETS) + self.choice(VOWELS) + (self.choice(CODAS) if self.chance(0.4) else "")
        return text

    def strange(self, words):
        """A word that has no business here: a real one, two cut ones, or an invented one."""
        kind = self.random()
        if kind < 0.5:
            return self.choice(words)
        if kind < 0.75:
            first, second = self.choice(words), self.choice(words)
            return first[:self.between(1, 5)] + second[-self.between(2, 5):]
        return self.syllables(1, 3)

    def identifier(self, words):
        """A name of a function, parameter or key, in one of the usual styles."""
        parts = [self.strange(words) for _ in range(self.choice((1, 1, 2, 2, 3)))]
        style = self.random()
        if style < 0.7:
            return "_".join(parts)
        if style < 0.85:
            return parts[0] + "".join(p.capitalize() for p in parts[1:])
        return "-".join(parts)

    def code(self, digits):
        return "".join(self.choice("0123456789") for _ in range(digits))
