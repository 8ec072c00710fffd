"""Operations on short lists and words. Answers follow at once where looking suffices, and after counting where it does not."""
from .draw import phrasings
from .words import WORDS

ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")


def number_list(draw, low=3, high=6):
    count = draw.between(low, high)
    return draw.sample(range(10, 100), count) if draw.chance(0.7) else draw.sample(range(100, 1000), count)


def word_list(draw, low=3, high=6):
    return draw.sample(WORDS, draw.between(low, high))


def comma(items):
    return ", ".join(str(i) for i in items)


def sort_numbers(draw):
    items = number_list(draw)
    down = draw.chance(0.4)
    text = draw.phrase(SORT_DOWN if down else SORT, l=comma(items))
    return text, "", comma(sorted(items, reverse=down))


SORT = phrasings("Sort these numbers from smallest to largest: {l}",
                 "Put these numbers in order, smallest first: {l}",
                 "Sort in ascending order: {l}",
                 "Arrange from low to high: {l}",
                 test=("Please sort the numbers {l} from smallest to largest.", "Order these numbers from low to high: {l}"))
SORT_DOWN = phrasings("Sort these numbers from largest to smallest: {l}",
                      "Put these numbers in order, largest first: {l}",
                      "Sort in descending order: {l}",
                      "Arrange from high to low: {l}",
                      test=("Please sort the numbers {l} from largest to smallest.", "Order these numbers from high to low: {l}"))
REVERSE = phrasings("Reverse this list: {l}",
                    "Write this list backwards: {l}",
                    "Give these items in reverse order: {l}",
                    "Turn the order of this list around: {l}",
                    test=("Please reverse the list {l}.", "Write these items in reverse order: {l}"))
COUNT = phrasings("How many items are in this list? {l}",
                  "Count the items: {l}",
                  "How many entries does this list have? {l}",
                  test=("Please count the items in this list: {l}", "How many entries are there? {l}"))
LARGEST = phrasings("What is the largest number? {l}",
                    "Which of these numbers is the largest? {l}",
                    "Find the maximum: {l}",
                    "Which number is the biggest? {l}",
                    test=("Please find the largest number: {l}", "What is the maximum of these numbers? {l}"))
SMALLEST = phrasings("What is the smallest number? {l}",
                     "Which of these numbers is the smallest? {l}",
                     "Find the minimum: {l}",
                     "Which number is the least? {l}",
                     test=("Please find the smallest number: {l}", "What is the minimum of these numbers? {l}"))
NTH = phrasings("What is the {o} item of this list? {l}",
                "Which item is {o} in this list? {l}",
                "Give me the {o} entry: {l}",
                test=("Please tell me the {o} item: {l}", "What is the {o} entry of this list? {l}"))
LAST = phrasings("What is the last item of this list? {l}",
                 "Which item is last in this list? {l}",
                 "Give me the last entry: {l}",
                 test=("Please tell me the last item: {l}", "What is the last entry of this list? {l}"))
TIMES = phrasings("How often does {w} occur in this list? {l}",
                  "Count how many times {w} appears: {l}",
                  test=("How many times does {w} occur? {l}", "Please count how often {w} appears: {l}"))
UPPER = phrasings("Write in capital letters: {w}",
                  "Turn this into upper case: {w}",
                  "Write {w} in upper case.",
                  test=("Please write {w} in capital letters.", ))
SPELL = phrasings("Spell the word {w}.",
                  "Write the letters of {w}, separated by dashes.",
                  "How do you spell {w}?",
                  test=("Please spell {w}.", "Give me the letters of the word {w}."))
JOIN = phrasings("Join these words with dashes: {l}",
                 "Write these words with dashes between them: {l}",
                 test=("Please join the words {l} with dashes.", ))
UNIQUE = phrasings("Remove repeated items: {l}",
                   "Keep each item only once: {l}",
                   "Drop the duplicates: {l}",
                   test=("Please remove the duplicates: {l}", "Write each item of this list only once: {l}"))
WITHOUT = phrasings("Remove {w} from this list: {l}",
                    "Write this list without {w}: {l}",
                    test=("Please take {w} out of this list: {l}", "Drop {w} from the list {l}."))
EVEN = phrasings("Which of these numbers are even? {l}", "Keep only the even numbers: {l}", test=("Please pick the even numbers: {l}", ))


def reverse(draw):
    items = word_list(draw) if draw.chance(0.6) else number_list(draw)
    return draw.phrase(REVERSE, l=comma(items)), "", comma(items[::-1])


def count(draw):
    items = word_list(draw, 3, 9)
    reasoning = ", ".join(f"{i} {w}" for i, w in enumerate(items, 1))
    return draw.phrase(COUNT, l=comma(items)), reasoning, f"There are {len(items)} items."


def extreme(draw):
    items = number_list(draw, 3, 7)
    if draw.chance(0.5):
        return draw.phrase(LARGEST, l=comma(items)), "", f"The largest number is {max(items)}."
    return draw.phrase(SMALLEST, l=comma(items)), "", f"The smallest number is {min(items)}."


def nth(draw):
    items = word_list(draw, 3, 6)
    if draw.chance(0.2):
        return draw.phrase(LAST, l=comma(items)), "", f"The last item is {items[-1]}."
    at = draw.randrange(len(items))
    reasoning = ", ".join(f"{i} {w}" for i, w in enumerate(items[:at + 1], 1))
    return draw.phrase(NTH, l=comma(items), o=ORDINALS[at]), reasoning, f"The {ORDINALS[at]} item is {items[at]}."


def occurrences(draw):
    pool = draw.sample(WORDS, 3)
    items = [draw.choice(pool) for _ in range(draw.between(4, 9))]
    word, n, steps = draw.choice(pool), 0, []
    for w in items:
        n += w == word
        steps.append(f"{w} {n}")
    return draw.phrase(TIMES, l=comma(items), w=word), ", ".join(steps), f"It occurs {n} times."


def upper(draw):
    word = draw.choice(WORDS)
    return draw.phrase(UPPER, w=word), "", word.upper()


def spell(draw):
    word = draw.choice(WORDS)
    return draw.phrase(SPELL, w=word), "", "-".join(word)


def join(draw):
    items = word_list(draw)
    return draw.phrase(JOIN, l=comma(items)), "", "-".join(items)


def unique(draw):
    pool = draw.sample(WORDS, draw.between(3, 4))
    items = pool + [draw.choice(pool) for _ in range(draw.between(1, 3))]
    draw.shuffle(items)
    return draw.phrase(UNIQUE, l=comma(items)), "", comma(dict.fromkeys(items))


def without(draw):
    items = word_list(draw, 3, 7)
    word = draw.choice(items)
    return draw.phrase(WITHOUT, l=comma(items), w=word), "", comma(w for w in items if w != word)


def even(draw):
    while True:
        items = number_list(draw, 4, 7)
        if any(n % 2 == 0 for n in items):
            return draw.phrase(EVEN, l=comma(items)), "", comma(n for n in items if n % 2 == 0)


OPERATIONS = (sort_numbers, sort_numbers, reverse, reverse, count, extreme, extreme, nth, nth, occurrences, upper, spell, join, unique,
              without, even)


def turn(draw):
    question, reasoning, answer = draw.choice(OPERATIONS)(draw)
    return [{"role": "user", "content": question}, {"role": "assistant", "reasoning_content": reasoning, "content": answer}]


def conversation(draw):
    messages = []
    for _ in range(1 if draw.split != "train" else draw.between(1, 4)):
        messages += turn(draw)
    return {"messages": messages}
