"""Operations on short lists and words. Answers follow at once where looking suffices, and after counting where it does not."""
from .draw import either, phrasings, requests
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


SORT = requests("sort these numbers from smallest to largest: {l}",
                "put these numbers in order, smallest first: {l}",
                "sort in ascending order: {l}",
                "arrange from low to high: {l}",
                "order these values from small to large: {l}",
                "write these numbers in rising order: {l}",
                "rank the numbers, the smallest one first: {l}",
                "sort the list {l} upwards",
                "bring {l} into ascending order",
                "sort {l} from lowest to highest",
                "list {l} from the least to the greatest",
                test=("Please sort the numbers {l} from smallest to largest.", "Order these numbers from low to high: {l}"))
SORT_DOWN = requests("sort these numbers from largest to smallest: {l}",
                     "put these numbers in order, largest first: {l}",
                     "sort in descending order: {l}",
                     "arrange from high to low: {l}",
                     "order these values from large to small: {l}",
                     "write these numbers in falling order: {l}",
                     "rank the numbers, the largest one first: {l}",
                     "sort the list {l} downwards",
                     "bring {l} into descending order",
                     "sort {l} from highest to lowest",
                     "list {l} from the greatest to the least",
                     test=("Please sort the numbers {l} from largest to smallest.", "Order these numbers from high to low: {l}"))
REVERSE = requests("reverse this list: {l}",
                   "write this list backwards: {l}",
                   "give these items in reverse order: {l}",
                   "turn the order of this list around: {l}",
                   "reverse the order of these entries: {l}",
                   "reverse {l}",
                   "write {l} from the end to the start",
                   "list these from last to first: {l}",
                   "flip this list: {l}",
                   test=("Please reverse the list {l}.", "Write these items in reverse order: {l}"))
COUNT = either(
    requests("count the items: {l}", "count the entries of this list: {l}", "say how many items this list has: {l}",
             "count how many things are named: {l}", "find the length of this list: {l}", "count {l}"),
    phrasings("How many items are in this list? {l}",
              "How many entries does this list have? {l}",
              "{l}\nHow many items is that?",
              "How long is this list? {l}",
              "How many things are listed? {l}",
              test=("Please count the items in this list: {l}", "How many entries are there? {l}")))
LARGEST = either(
    requests("find the maximum: {l}", "pick the largest number: {l}", "tell me the biggest number: {l}", "name the highest value: {l}",
             "choose the greatest of these: {l}", "find the largest of {l}"),
    phrasings("What is the largest number? {l}",
              "Which of these numbers is the largest? {l}",
              "Which number is the biggest? {l}",
              "{l}\nWhich one is the largest?",
              "What is the highest of {l}?",
              test=("Please find the largest number: {l}", "What is the maximum of these numbers? {l}")))
SMALLEST = either(
    requests("find the minimum: {l}", "pick the smallest number: {l}", "tell me the least number: {l}", "name the lowest value: {l}",
             "choose the smallest of these: {l}", "find the smallest of {l}"),
    phrasings("What is the smallest number? {l}",
              "Which of these numbers is the smallest? {l}",
              "Which number is the least? {l}",
              "{l}\nWhich one is the smallest?",
              "What is the lowest of {l}?",
              test=("Please find the smallest number: {l}", "What is the minimum of these numbers? {l}")))
NTH = either(
    requests("give me the {o} entry: {l}", "name the {o} item: {l}", "pick the {o} element: {l}", "take the {o} item of this list: {l}",
             "find the {o} word: {l}", "write the {o} entry of {l}"),
    phrasings("What is the {o} item of this list? {l}",
              "Which item is {o} in this list? {l}",
              "{l}\nWhich one is the {o}?",
              "Which entry comes {o}? {l}",
              "What stands {o} in {l}?",
              test=("Please tell me the {o} item: {l}", "What is the {o} entry of this list? {l}")))
LAST = either(
    requests("give me the last entry: {l}", "name the last item: {l}", "pick the last element: {l}",
             "take the last item of this list: {l}", "write the last entry of {l}"),
    phrasings("What is the last item of this list? {l}",
              "Which item is last in this list? {l}",
              "{l}\nWhich one is the last?",
              "Which entry comes last? {l}",
              "What stands last in {l}?",
              test=("Please tell me the last item: {l}", "What is the last entry of this list? {l}")))
TIMES = either(
    requests("count how many times {w} appears: {l}", "count {w} in this list: {l}", "say how often {w} is named: {l}",
             "find out how many times {w} stands here: {l}"),
    phrasings("How often does {w} occur in this list? {l}",
              "How often is {w} listed? {l}",
              "{l}\nHow many times is {w} in it?",
              "How many times can you find {w}? {l}",
              test=("How many times does {w} occur? {l}", "Please count how often {w} appears: {l}")))
UPPER = requests("write in capital letters: {w}",
                 "turn this into upper case: {w}",
                 "write {w} in upper case",
                 "change {w} to capitals",
                 "put {w} in capital letters",
                 "make {w} upper case",
                 test=("Please write {w} in capital letters.", ))
SPELL = either(
    requests("spell the word {w}", "write the letters of {w}, separated by dashes", "spell {w} letter by letter",
             "list the letters of {w}", "take {w} apart into letters"),
    phrasings("How do you spell {w}?", "How is {w} spelled?", test=("Please spell {w}.", "Give me the letters of the word {w}.")))
JOIN = requests("join these words with dashes: {l}",
                "write these words with dashes between them: {l}",
                "connect these words by dashes: {l}",
                "put dashes between these words: {l}",
                "join {l} with a dash",
                "glue these together with dashes: {l}",
                test=("Please join the words {l} with dashes.", ))
UNIQUE = requests("remove repeated items: {l}",
                  "keep each item only once: {l}",
                  "drop the duplicates: {l}",
                  "delete what occurs twice: {l}",
                  "list every item once: {l}",
                  "clean this list of repetitions: {l}",
                  "remove the repetitions from {l}",
                  test=("Please remove the duplicates: {l}", "Write each item of this list only once: {l}"))
WITHOUT = requests("remove {w} from this list: {l}",
                   "write this list without {w}: {l}",
                   "delete {w}: {l}",
                   "leave {w} out: {l}",
                   "strike {w} from the list: {l}",
                   "cross out {w} in {l}",
                   "remove {w} from {l}",
                   test=("Please take {w} out of this list: {l}", "Drop {w} from the list {l}."))
EVEN = either(
    requests("keep only the even numbers: {l}", "list the even numbers: {l}", "find all even numbers: {l}", "take the even ones: {l}"),
    phrasings("Which of these numbers are even? {l}", "Which ones are even? {l}", test=("Please pick the even numbers: {l}", )))


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
