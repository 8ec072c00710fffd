"""Sentences that say little: the hay around needles, and text to copy."""
from .draw import phrasings
from .words import ADJECTIVES, ANIMALS, CITIES, COLOURS, DAYS, JOBS, MONTHS, NAMES, OBJECTS, PLACES, THINGS

SENTENCES = phrasings("The {a} {n} slept near the {p}.",
                      "A {a} {o} lay on the table in the {p}.",
                      "{N} walked to the {p} and came back in the evening.",
                      "It rained on {d}, and the {p} was quiet.",
                      "The {j} from {c} told a story about a {n} and a {o}.",
                      "In {m}, the {p} is full of {t}.",
                      "{N} and {M} met at the {p} on {d}.",
                      "Nobody knew where the {a} {o} came from.",
                      "The {n} looked at the {o} for a long time.",
                      "A {j} bought some {t} at the {p}.",
                      "The road to {c} is long and {a}.",
                      "On {d} the {n} found a {a} {o} behind the {p}.",
                      "{N} likes {t}, but {M} does not.",
                      "The {p} of {c} has a {k} door.",
                      "There was a {k} {o} and a {a} {n}.",
                      "Every {d} the {j} goes to the {p}.",
                      "The wind was {a} and the sky was {k}.",
                      "{N} wrote a letter to {M} about the {p}.",
                      "Some {t} were left in the {p} last {m}.",
                      "The old {j} sat beside the {o} and said nothing.",
                      "A {n} ran across the {p} and was gone.",
                      "{N} put the {o} back where it was.",
                      "The {a} {j} opened the window of the {p}.",
                      "They spoke about {c}, about {t} and about the weather.",
                      test=("Near the {p} a {a} {n} was waiting.", "{N} carried the {o} from {c} to the {p}.",
                            "In {m} the {j} sold {t} at the {p}.", "The {k} {o} belongs to {N}, not to {M}.",
                            "A {a} {n} came to the {p} every {d}."))


def sentence(draw):
    first, second = draw.sample(NAMES, 2)
    return draw.phrase(SENTENCES,
                       a=draw.choice(ADJECTIVES),
                       n=draw.choice(ANIMALS),
                       p=draw.choice(PLACES),
                       o=draw.choice(OBJECTS),
                       N=first,
                       M=second,
                       d=draw.choice(DAYS),
                       j=draw.choice(JOBS),
                       c=draw.choice(CITIES),
                       m=draw.choice(MONTHS),
                       t=draw.choice(THINGS),
                       k=draw.choice(COLOURS))
