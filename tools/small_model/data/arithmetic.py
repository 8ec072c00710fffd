"""Word problems, with the sum worked out digit by digit inside <think>.

A story fixes a chain of operations on its numbers; the numbers are drawn so that every intermediate result stays between 0 and 999.
Numbers in `kept` occur as operands in tests only.
"""
import re

from .draw import either, phrasings, requests
from .words import NAMES, PLACES, THINGS


def kept(n):
    """Operands that training never sees."""
    return 340 <= n <= 379 or 610 <= n <= 629 or 55 <= n <= 58


def digits_of(n):
    return [int(d) for d in reversed(str(n))]


def add_steps(a, b):
    x, y, carry, steps = digits_of(a), digits_of(b), 0, []
    for i in range(max(len(x), len(y))):
        p, q = (x[i] if i < len(x) else 0), (y[i] if i < len(y) else 0)
        total = p + q + carry
        steps.append(f"{p} + {q}{' + 1' if carry else ''} = {total}")
        carry = total // 10
    return f"{a} + {b}: {', '.join(steps)}. So {a + b}."


def subtract_steps(a, b):
    x, y, borrow, steps = digits_of(a), digits_of(b), 0, []
    for i, p in enumerate(x):
        q = y[i] if i < len(y) else 0
        low = p - q - borrow < 0
        steps.append(f"{p + 10 * low} - {q}{' - 1' if borrow else ''} = {p + 10 * low - q - borrow}")
        borrow = int(low)
    return f"{a} - {b}: {', '.join(steps)}. So {a - b}."


def multiply_steps(a, b):
    """One factor has one digit; it is written first."""
    if a > 9:
        a, b = b, a
    if b < 10:
        return f"{a} x {b} = {a * b}."
    tens, ones = b // 10 * 10, b % 10
    return f"{a} x {tens} = {a * tens}, {a} x {ones} = {a * ones}. " + add_steps(a * tens, a * ones)


STEPS = {"+": add_steps, "-": subtract_steps, "x": multiply_steps}
APPLY = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "x": lambda a, b: a * b}


def operand(draw, low, high):
    while True:
        n = draw.between(low, high)
        if draw.split != "train" or not kept(n):
            return n


def numbers(draw, chain):
    """Operands of a chain such as "+-": the first number, then one for each operation."""
    while True:
        small = draw.chance(0.4)
        values = [
            operand(draw, 2, 9) if chain[0] == "x" and draw.chance(0.5) else operand(draw, 10 if small else 2, 99 if small else 899)
        ]
        total = values[0]
        if chain[0] == "x" and total > 99:
            continue
        for operation in chain:
            if operation == "x":
                value = operand(draw, 2, 9) if total > 9 else operand(draw, 3, 99)
                if total > 99:
                    break
            elif operation == "-":
                if total < 4:
                    break
                value = operand(draw, 2, total - 1)
            else:
                value = operand(draw, 2, 99 if small else 499)
            total = APPLY[operation](total, value)
            if not 0 < total <= 999:
                break
            values.append(value)
        if len(values) == len(chain) + 1 and (draw.split != "values" or any(kept(v) for v in values)):
            return values


def work(chain, values):
    """The lines of reasoning, and the result."""
    total, lines = values[0], []
    for operation, value in zip(chain, values[1:]):
        lines.append(STEPS[operation](total, value))
        total = APPLY[operation](total, value)
    return "\n".join(lines), total


PLAIN = {
    "+": either(
        requests("calculate {a} + {b}", "compute {a} + {b}", "work out {a} + {b}", "add {a} and {b}", "find the sum of {a} and {b}",
                 "add {b} to {a}", "tell me {a} plus {b}", "solve {a} + {b}", "say what {a} and {b} make together"),
        phrasings("What is {a} + {b}?",
                  "{a} + {b} = ?",
                  "{a} + {b}",
                  "What is {a} plus {b}?",
                  "How much is {a} + {b}?",
                  "{a} plus {b}?",
                  "What do you get when you add {b} to {a}?",
                  "How much do {a} and {b} make?",
                  "What do {a} and {b} add up to?",
                  test=("Please compute {a} + {b}.", "Tell me what {a} plus {b} is.", "What is the sum of {a} and {b}?"))),
    "-": either(
        requests("calculate {a} - {b}", "compute {a} - {b}", "work out {a} - {b}", "subtract {b} from {a}", "take {b} from {a}",
                 "find the difference of {a} and {b}", "tell me {a} minus {b}", "solve {a} - {b}", "say how much more {a} is than {b}"),
        phrasings("What is {a} - {b}?",
                  "{a} - {b} = ?",
                  "{a} - {b}",
                  "What is {a} minus {b}?",
                  "How much is {a} - {b}?",
                  "{a} minus {b}?",
                  "What is left when you take {b} from {a}?",
                  "How much more is {a} than {b}?",
                  "What remains of {a} without {b}?",
                  test=("Please compute {a} - {b}.", "Tell me what {a} minus {b} is.", "What is the difference of {a} and {b}?"))),
    "x": either(
        requests("calculate {a} x {b}", "compute {a} x {b}", "work out {a} x {b}", "multiply {a} by {b}",
                 "find the product of {a} and {b}", "tell me {a} times {b}", "solve {a} x {b}", "multiply {a} and {b}"),
        phrasings("What is {a} x {b}?",
                  "{a} x {b} = ?",
                  "{a} x {b}",
                  "What is {a} times {b}?",
                  "How much is {a} x {b}?",
                  "{a} times {b}?",
                  "What do you get when you multiply {a} by {b}?",
                  "How much is {a} times {b}?",
                  test=("Please compute {a} x {b}.", "Tell me what {a} times {b} is.", "What is the product of {a} and {b}?"))),
}

# Stories in sentences that go together in any way; only training draws them. Numbers are told in the order in which they are worked with.
HAS = ("has", "had", "keeps", "kept", "holds", "got", "counts", "counted", "finds", "found", "owns", "collected", "carries", "picks up",
       "picked up", "brings", "brought", "makes", "made", "buys", "bought", "sees", "saw", "starts with", "receives", "gathered", "packs")
BEGINNINGS = ("{n} V {a} {t}.", "{n} V {a} {t}.", "At the {p}, {n} V {a} {t}.", "In the {p}, {n} V {a} {t}.", "{n} V {a} {t} in the {p}.",
              "There are {a} {t} in the {p}.", "There were {a} {t} in the {p}.", "The {p} holds {a} {t}.", "The {p} has {a} {t}.",
              "The {p} had {a} {t}.", "A shop has {a} {t}.", "A shop had {a} {t}.", "A box holds {a} {t}.", "{m} gives {n} {a} {t}.",
              "On Monday there are {a} {t}.", "Last week there were {a} {t} here.", "{a} {t} lie in the {p}.", "We have {a} {t}.",
              "{a} {t} are on the table.", "{n} and {m} have {a} {t}.", "In the morning {n} V {a} {t}.", "Yesterday {n} V {a} {t}.")
HOLDERS = ("boxes", "bags", "jars", "baskets", "crates", "shelves", "rows", "piles", "drawers", "sacks", "rooms", "carts", "trays",
           "bundles", "cases", "barrels")
PEOPLE = ("children", "guests", "visitors", "sailors", "bakers", "girls", "boys", "neighbours", "teachers", "farmers")
MULTIPLIED = ("There are {a} H with {b} {t} in each.", "{n} V {a} H of {b} {t} each.", "{n} V {a} H, and each of them holds {b} {t}.",
              "The {p} has {a} H. On every one there are {b} {t}.", "{a} W bring {b} {t} each.", "Each of {a} W brings {b} {t}.",
              "Every one of {a} W has {b} {t}.", "Each of the {a} W makes {b} {t}.", "{a} W carry {b} {t} each.",
              "{n} packs {a} H with {b} {t} in each.", "Each day {n} makes {a} {t}, for {b} days.", "{a} H of {b} {t} stand in the {p}.",
              "Every one of {a} H has {b} {t} in it.", "Each of {a} H holds {b} {t}.", "In each of {a} H there are {b} {t}.",
              "{n} collects {a} {t} every hour, {b} hours long.", "{n} V {a} {t} every day for {b} days.",
              "{n} fills {a} H with {b} {t} each.",
              "There are {a} {t} in each of {b} H.", "{a} H hold {b} {t} each.", "We have {a} H. Each holds {b} {t}.",
              "Each of {a} W gives {n} {b} {t}.", "{n} puts {a} {t} into each of {b} H.")
GAINED = ("brings", "brought", "finds", "found", "buys", "bought", "gets", "got", "makes", "made", "adds", "added", "collects", "collected",
          "receives", "received", "picks up", "picked up")
GAINS = ("S V {x} more", "S V {x} more", "S V another {x}", "S V {x} {t}", "S V {x} new ones", "{x} more are added", "{x} more were added",
         "another {x} arrive", "{x} more come in", "there are {x} more", "{x} new ones are brought from the {q}", "{x} {t} were added",
         "{n} gets {x} more from {m}", "{m} gives {n} {x} more", "S puts {x} more there")
LOST = ("takes", "took", "gives", "gave", "loses", "lost", "sells", "sold", "uses", "used", "breaks", "broke", "removes", "removed", "eats",
        "throws", "drops", "dropped", "lends", "hides", "carries")
LOSSES = ("S V {x} of them", "S V {x} of them", "S V {x}", "S V {x} {t}", "S takes {x} away", "S took {x} away", "S takes {x} of them home",
          "S gives {x} away", "S gave {x} of them away", "{x} are lost", "{x} were lost", "{x} of them break", "{x} are gone",
          "{x} were sold", "{x} are sold", "{x} of the {t} are given away", "{x} are carried to the {q}", "{x} were used up",
          "{n} gives {x} to {m}", "{n} gave {x} of them to {m}", "{x} {t} were taken away", "S throws {x} of them away")
LATER = ("then ", "later ", "after that, ", "the next day ", "in the end ", "on Tuesday ", "soon ", "since then ", "in the evening ")
SUBJECTS = ("{n}", "{n}", "{m}", "{m}", "a friend", "someone", "the baker", "a visitor")
JOINTS = (". ", ". ", ". ", ". ", ", then ", ", and ", " and then ", "; ", ", but ", ", and later ", ". And ")
ASIDES = ("It is a warm day.", "The {p} is quiet.", "{m} is happy.", "It rains a little.", "Nobody else is there.")
ENDINGS = ("How many {t} are there now?", "How many {t} are there in the end?", "How many {t} does that make?",
           "What is the number of {t} now?", "How many {t} is that?", "Count the {t}.", "How many are there at last?",
           "Find the number of {t}.", "How many {t} do we have then?", "How many {t} are there in total?", "How many {t} are there in all?",
           "How many {t} does {n} have now?", "How many {t} does {n} have?", "How many {t} is that in total?")
LEFT = ("How many {t} are left?", "How many {t} remain?", "How many are left over?", "How many {t} are still there?",
        "How many {t} does {n} have left?", "How many of them are left?")
TWO = ("{n} V {a} {t} and {m} V {b} {t}.", "{n} V {a} {t}. {m} V {b} {t}.", "{n} V {a} {t}, {m} V {b}.", "{n} V {a} {t} while {m} V {b}.",
       "The first box holds {a} {t} and the second holds {b}.", "There are {a} {t} in the {p} and {b} in the {q}.")
THREE = ("{n} V {a} {t}, {m} V {b}, and there are {c} in the {p}.", "There are {a} {t} in one box, {b} in another and {c} in a third.",
         "{n} V {a} {t} on Monday, {b} on Tuesday and {c} on Friday.", "We see {a} red, {b} white and {c} black {t}.",
         "{n} V {a} {t}, then {b} more, and then {c}.")
SUMS = ("How many {t} is that together?", "How many {t} do they have together?", "How many {t} are there in all?",
        "How many {t} is that in total?", "How many {t} do they have altogether?", "What is the sum?",
        "How many {t} are there together?", "Add them up.")
DIFFERENCES = ("How many more {t} does {n} have than {m}?", "How many fewer {t} does {m} have than {n}?", "What is the difference?",
               "By how many {t} is {n} ahead of {m}?", "How many more {t} has {n}?", "How many {t} does {m} lack?")


def filled(draw, text, verbs):
    """Puts a verb, a subject, holders and people in the places of capitals that stand alone."""
    for mark, words in (("V", verbs), ("S", SUBJECTS), ("H", HOLDERS), ("W", PEOPLE)):
        while re.search(rf"\b{mark}\b", text):
            text = re.sub(rf"\b{mark}\b", draw.choice(words), text, count=1)
    return text


def capital(text):
    return text[0].upper() + text[1:]


def happening(draw, operation, slot):
    """A gain or a loss as a clause."""
    text = filled(draw, draw.choice(GAINS), GAINED) if operation == "+" else filled(draw, draw.choice(LOSSES), LOST)
    return (draw.choice(LATER) if draw.chance(0.25) else "") + text.replace("{x}", slot)


def story_of(draw, chain):
    """A frame of any chain, with its numbers as {a}, {b}, ..."""
    if chain in ("+", "-", "++") and draw.chance(0.35):
        told = filled(draw, draw.choice(THREE if chain == "++" else TWO), HAS)
        return f"{told} {draw.choice(DIFFERENCES if chain == '-' else SUMS)}"
    multiplied = chain[0] == "x"
    text = filled(draw, draw.choice(MULTIPLIED if multiplied else BEGINNINGS), HAS)
    for i, operation in enumerate(chain):
        if i == 0 and multiplied:
            continue
        joint = draw.choice(JOINTS)
        clause = happening(draw, operation, "{" + "abcd"[i + 1] + "}")
        text = text[:-1] + joint + (capital(clause) if joint == ". " else clause) + "."
    if draw.chance(0.15):
        text += " " + draw.choice(ASIDES)
    return text + " " + draw.choice(ENDINGS + LEFT if chain[-1] == "-" else ENDINGS)


def told(draw, chain, values, slots):
    """A story of any chain that tests do not tell."""
    tests = STORIES[chain].test if chain in STORIES else ()
    while (frame := story_of(draw, chain)) in tests:
        pass
    return draw.loosened(frame, tests).format(**dict(slots, **dict(zip("abcd", values))))


STORIES = {
    "+": phrasings("{n} has {a} {t}. {m} gives {n} {b} more {t}. How many {t} does {n} have now?",
                   "There are {a} {t} in the {p}. {n} brings {b} more. How many {t} are there in all?",
                   "{n} found {a} {t} on one day and {b} {t} on the next day. How many {t} did {n} find in total?",
                   "{n} has {a} {t} and {m} has {b} {t}. How many {t} do they have together?",
                   "A shop sold {a} {t} in the morning and {b} {t} in the afternoon. How many {t} did the shop sell?",
                   "One box holds {a} {t}. Another box holds {b} {t}. How many {t} are in both boxes together?",
                   "{n} counted {a} {t} near the {p}. Then {n} counted {b} more. How many {t} did {n} count?",
                   "{m} made {a} {t}. {n} made {b} {t}. How many {t} did they make altogether?",
                   "{n} had {a} {t} and bought {b} more at the {p}. How many {t} does {n} have now?",
                   "In the {p} there were {a} {t}. Later {b} {t} were added. How many {t} are there now?",
                   test=("At the {p}, {n} picks up {a} {t} and then {b} more. How many {t} does {n} have in total?",
                         "{m} owns {a} {t}. {n} owns {b} {t}. How many {t} do they own together?",
                         "The {p} had {a} {t} last week. Since then {b} more {t} were added. How many {t} are there now?")),
    "-": phrasings("{n} has {a} {t}. {n} gives {b} {t} to {m}. How many {t} does {n} have left?",
                   "There are {a} {t} in the {p}. {n} takes {b} of them away. How many {t} are left?",
                   "{n} had {a} {t} but lost {b} of them. How many {t} does {n} have now?",
                   "A shop had {a} {t}. It sold {b} of them. How many {t} are left in the shop?",
                   "{n} has {a} {t} and {m} has {b} {t}. How many more {t} does {n} have than {m}?",
                   "{n} baked {a} pies and sold {b} of them. How many pies remain?",
                   "Of {a} {t} in the {p}, {b} are broken. How many {t} are not broken?",
                   "{n} needs {a} {t} and has {b} of them. How many more {t} does {n} need?",
                   "{n} carried {a} {t} to the {p}, but {b} fell out on the way. How many {t} arrived?",
                   "{m} had {a} {t}. After giving away {b}, how many {t} does {m} have left?",
                   test=("{n} owns {a} {t} and gives {b} of them away. How many {t} does {n} have left?",
                         "The {p} had {a} {t}. Then {n} took {b} of them. How many {t} remain?",
                         "{m} has {a} {t}. {n} has {b} {t}. How many more {t} does {m} have than {n}?")),
    "x": phrasings("There are {a} boxes with {b} {t} in each box. How many {t} are there in total?",
                   "{n} buys {a} bags. Each bag holds {b} {t}. How many {t} does {n} have?",
                   "One ticket costs {a} coins. {n} buys {b} tickets. How many coins does {n} pay?",
                   "{n} reads {a} pages every day. How many pages does {n} read in {b} days?",
                   "A hall in the {p} has {a} rows with {b} chairs each. How many chairs are there?",
                   "{n} fills {a} jars with {b} {t} each. How many {t} is that in all?",
                   "Each of {a} friends brings {b} {t}. How many {t} do they bring together?",
                   "{n} walks {a} miles every day. How many miles does {n} walk in {b} days?",
                   "{m} packs {a} baskets and puts {b} {t} into each one. How many {t} are packed?",
                   test=("The {p} has {a} shelves with {b} {t} on each shelf. How many {t} are there in total?",
                         "{n} makes {a} {t} every day. How many {t} does {n} make in {b} days?",
                         "Each of {a} bags holds {b} {t}. How many {t} are in the bags together?")),
    "++": phrasings("{n} has {a} {t}. {n} finds {b} more and then buys {c} more. How many {t} does {n} have now?",
                    "{n} has {a} {t}, {m} has {b} {t}, and there are {c} more in the {p}. How many {t} are there in total?",
                    "A shop sold {a} {t} on Monday, {b} on Tuesday and {c} on Wednesday. How many {t} did it sell in total?",
                    "There are {a} red, {b} blue and {c} green {t} in the {p}. How many {t} are there in all?",
                    "{n} counted {a} {t} at first, then {b} more, then {c} more. How many {t} did {n} count in all?",
                    test=("{n} buys {a} {t}, then finds {b} more, and {m} brings {c} more. How many {t} are there in total?",
                          "There are {a} {t} in the first box, {b} in the second and {c} in the third. How many {t} are there in all?")),
    "+-": phrasings("{n} has {a} {t}. {m} gives {n} {b} more. Then {n} loses {c} of them. How many {t} does {n} have now?",
                    "There are {a} {t} in the {p}. {n} brings {b} more, and {m} takes {c} away. How many {t} are left?",
                    "A shop had {a} {t}. It got {b} new ones and sold {c}. How many {t} are left in the shop?",
                    "{n} had {a} {t}, bought {b} more and gave {c} to {m}. How many {t} does {n} have left?",
                    "{n} and {m} have {a} and {b} {t}. Together they give away {c}. How many {t} do they have left?",
                    test=("{n} has {a} {t}, finds {b} more and then gives {c} to {m}. How many {t} does {n} have left?",
                          "The {p} had {a} {t}. Then {b} more were added, and {n} took {c} away. How many {t} are left?")),
    "-+": phrasings("{n} has {a} {t}. {n} gives {b} to {m} and then buys {c} more. How many {t} does {n} have now?",
                    "There are {a} {t} in the {p}. {n} takes {b} away, and {m} brings {c} new ones. How many {t} are there now?",
                    "A shop had {a} {t}. It sold {b} and then got {c} new ones. How many {t} does the shop have now?",
                    "{n} had {a} {t}, lost {b} of them and found {c} others. How many {t} does {n} have now?",
                    test=("{n} has {a} {t}, loses {b} of them and then buys {c} more. How many {t} does {n} have now?",
                          "The {p} had {a} {t}. {n} took {b} away, then {c} more were added. How many {t} are there now?")),
    "--": phrasings("{n} has {a} {t}. {n} gives {b} to {m} and loses {c}. How many {t} does {n} have left?",
                    "There are {a} {t} in the {p}. {n} takes {b} away, and {m} takes {c} away. How many {t} are left?",
                    "A shop had {a} {t}. It sold {b} in the morning and {c} in the afternoon. How many {t} are left in the shop?",
                    "Of {a} {t}, {b} are red, {c} are blue and all others are green. How many {t} are green?",
                    test=("{n} owns {a} {t}, loses {b} of them and gives {c} to {m}. How many {t} does {n} have left?",
                          "The {p} had {a} {t}. It sold {b} on Monday and {c} on Tuesday. How many {t} are left?")),
    "x+": phrasings("{n} buys {a} bags with {b} {t} in each bag and finds {c} more. How many {t} does {n} have?",
                    "There are {a} boxes with {b} {t} in each box, and {c} more {t} on the table. How many {t} are there in total?",
                    "{n} reads {a} pages every day for {b} days, and then {c} more pages. How many pages does {n} read in all?",
                    "A hall has {a} rows with {b} chairs each. {n} brings {c} more chairs. How many chairs are there now?",
                    test=("{n} fills {a} jars with {b} {t} each and has {c} more {t} left over. How many {t} are there in total?",
                          "Each of {a} friends brings {b} {t}, and {n} brings {c} more. How many {t} are there in all?")),
    "x-": phrasings("{n} buys {a} bags with {b} {t} in each bag and gives {c} {t} to {m}. How many {t} does {n} have left?",
                    "There are {a} boxes with {b} {t} in each box. {n} takes {c} {t} away. How many {t} are left?",
                    "{n} packs {a} baskets with {b} {t} each. Then {c} of the {t} are sold. How many {t} are left?",
                    "A hall has {a} rows with {b} chairs each. {c} chairs are broken. How many chairs are not broken?",
                    test=("{n} fills {a} jars with {b} {t} each and then loses {c} {t}. How many {t} does {n} have left?",
                          "Each of {a} friends brings {b} {t}. Then {n} takes {c} of them away. How many {t} are left?")),
}

ANSWER = "The answer is {}."


def problem(draw):
    """question, reasoning, result."""
    if draw.chance(0.25):
        chain = draw.choice(list(PLAIN))
        a, b = numbers(draw, chain)
        reasoning, result = work(chain, (a, b))
        return draw.phrase(PLAIN[chain], a=a, b=b), reasoning, result
    chain = draw.choice(list(STORIES))
    if draw.split == "train" and draw.chance(0.08):
        chain = draw.choice(("+++", "++-", "+-+", "-+-", "x+-", "x-+"))
    values = numbers(draw, chain)
    n, m = draw.sample(NAMES, 2)
    slots = dict(zip("abc", values), n=n, m=m, t=draw.choice(THINGS), p=draw.choice(PLACES))
    reasoning, result = work(chain, values)
    if chain not in STORIES or (draw.split == "train" and draw.chance(0.65)):
        return told(draw, chain, values, dict(slots, q=draw.choice(PLACES))), reasoning, result
    return draw.phrase(STORIES[chain], **slots), reasoning, result


def turn(draw):
    question, reasoning, result = problem(draw)
    return [{"role": "user", "content": question},
            {"role": "assistant", "reasoning_content": reasoning, "content": ANSWER.format(result)}]


def conversation(draw):
    messages = []
    for _ in range(1 if draw.split != "train" else draw.between(1, 3)):
        messages += turn(draw)
    return {"messages": messages}
