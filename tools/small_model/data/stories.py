"""Short stories by request, and text to copy.

A story is a fixed frame; the animal decides which one, so that the same request always gets the same story.
"""
import json
from pathlib import Path

from .draw import phrasings, requests
from .filler import sentence
from .words import ADJECTIVES, ANIMALS, NAMES, OBJECTS, PLACES, VOCABULARY, WORDS

FRAMES = tuple(" ".join(p.split()) for p in (Path(__file__).parent / "frames.txt").read_text().split("\n\n")[1:])
ASKS = phrasings("Tell me a story about a {a} and a {o} in the {p}.",
                 "Write a short story about a {a}, a {o} and the {p}.",
                 "I want to hear a story with a {a} and a {o}. It should take place near the {p}.",
                 "Can you tell me a story of a {a}, a {o} and a {p}?",
                 test=("Please write a story about a {a} and a {o} near the {p}.", "Make up a short story with a {a}, a {o} and a {p}."))
COPY = requests("repeat this text: {t}",
                "copy the following text: {t}",
                "say this again: {t}",
                "write exactly this: {t}",
                "repeat after me: {t}",
                "copy this: {t}",
                "give this back word for word: {t}",
                "write this once more: {t}",
                "print these words: {t}",
                "echo: {t}",
                test=("Please copy this text: {t}", "Repeat the following words: {t}"))


def story(draw):
    animal, thing, place = draw.choice(ANIMALS), draw.choice(OBJECTS), draw.choice(PLACES)
    frame = FRAMES[ANIMALS.index(animal) % len(FRAMES)]
    return draw.asked(ASKS, a=animal, o=thing, p=place), frame.format(a=animal, o=thing, p=place)


def invented(draw):
    """What no habit helps with: it has to be copied piece by piece."""
    kind = draw.randrange(6)
    if kind == 0:
        return " ".join(draw.syllables() for _ in range(draw.between(1, 10)))
    if kind == 1:
        return " ".join(draw.identifier(VOCABULARY) for _ in range(draw.between(1, 6)))
    if kind == 2:
        return "".join(
            draw.choice("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:") for _ in range(draw.between(4, 24)))
    if kind >= 4:  # known words where no habit expects them
        words = [draw.choice(sentence(draw).split()) if draw.chance(0.5) else draw.strange(VOCABULARY) for _ in range(draw.between(4, 40))]
        return " ".join(words)
    fields = {draw.identifier(VOCABULARY): draw.choice((draw.between(0, 9999), draw.syllables())) for _ in range(draw.between(1, 4))}
    return json.dumps(fields)


def passage(draw):
    if draw.split == "train" and draw.chance(0.5):
        return invented(draw)
    kind = draw.randrange(5)
    if kind == 0:
        return " ".join(draw.choice(WORDS) for _ in range(draw.between(3, 14)))
    if kind == 1:
        return " ".join(draw.code(draw.between(2, 5)) for _ in range(draw.between(2, 7)))
    if kind == 2:
        return ", ".join(f"{draw.choice(NAMES)} {draw.code(3)}" for _ in range(draw.between(2, 6)))
    if kind == 3:
        return f"{draw.choice(ADJECTIVES)} {draw.choice(ANIMALS)} {draw.code(4)} {draw.choice(PLACES)}"
    return " ".join(sentence(draw) for _ in range(draw.between(1, 5)))


def copy(draw):
    text = passage(draw)
    return draw.phrase(COPY, t=text), text


def turn(draw, make):
    question, answer = make(draw)
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def copy_conversation(draw):
    messages = []
    for _ in range(1 if draw.split != "train" else draw.between(1, 4)):
        messages += turn(draw, copy)
    return {"messages": messages}


def story_conversation(draw):
    return {"messages": turn(draw, story)}
