"""Needles in hay: pass keys and records at any depth of a long text, and questions about some of them.

The text is made of sentences that have nothing to do with the question, with the needles between them. Lengths are in tokens and are met
within a few percent.
"""
from .draw import phrasings
from .filler import sentence
from .words import ADJECTIVES, ANIMALS, NAMES, SURNAMES, VOCABULARY, WORDS

SENTENCE_TOKENS = 11.5  # measured over the filler with the tokenizer that is committed; only steers lengths

INTROS = phrasings("Read the text and answer the question below.",
                   "Here is a long text. Remember what matters in it.",
                   "Read this text carefully. There will be questions about it.",
                   "Below is a text with some facts hidden in it.",
                   "Read this. Then answer.",
                   "The text first, then a question.",
                   "Look at this text. I will ask about it.",
                   "Here are some notes.",
                   "Go through the text below and answer.",
                   "A text for you. Answer the question behind it.",
                   "Study the following.",
                   "Find what I ask for in the text below.",
                   test=("Please read the following text. A question follows.", "Here is a text. Answer what is asked about it."))


class Kind:
    """One kind of needle: how it is written, asked and answered."""

    def __init__(self, key, value, needle, question, answer):
        self.key, self.value, self.needle, self.question, self.answer = key, value, needle, question, answer


def pair_key(draw):
    if draw.split == "train" and draw.chance(0.25):
        return f"{draw.syllables(2, 3)} {draw.choice(ANIMALS)}"
    return f"{draw.choice(ADJECTIVES)} {draw.choice(ANIMALS)}"


def person_key(draw):
    if draw.split == "train" and draw.chance(0.25):
        return f"{draw.syllables(1, 3).capitalize()} {draw.syllables(1, 3).capitalize()}"
    return f"{draw.choice(NAMES)} {draw.choice(SURNAMES)}"


KINDS = {
    "passkey": Kind(
        lambda draw: "", lambda draw: draw.code(5),
        phrasings("The pass key is {v}. Remember it.",
                  "Remember that the pass key is {v}.",
                  "Note: the pass key is {v}.",
                  "Pass key: {v}.",
                  "{v} is the pass key.",
                  "You need the pass key {v}.",
                  "Keep in mind: the pass key is {v}.",
                  test=("Do not forget this: the pass key is {v}.", )),
        phrasings("What is the pass key?",
                  "Which pass key was mentioned in the text?",
                  "Tell me the pass key.",
                  "Give me the pass key.",
                  "I need the pass key.",
                  "The pass key, please.",
                  "Do you remember the pass key?",
                  "Say the pass key.",
                  test=("What was the pass key in the text?", "Please give me the pass key.")), "The pass key is {v}."),
    "code": Kind(
        pair_key, lambda draw: draw.code(4),
        phrasings("The code of the {k} is {v}.",
                  "For the {k} the code is {v}.",
                  "Note: the code of the {k} is {v}.",
                  "Keep in mind: the code of the {k} is {v}.",
                  "You open the {k} with the code {v}.",
                  "The {k} is known by its code {v}.",
                  "The {k} has the code {v}.",
                  "Code of the {k}: {v}.",
                  "As for the {k}, its code is {v}.",
                  "{v} is the code of the {k}.",
                  test=("Remember that the code of the {k} is {v}.", )),
        phrasings("What is the code of the {k}?",
                  "Tell me the code of the {k}.",
                  "Which code does the {k} have?",
                  "The {k}: what is its code?",
                  "Give me the code of the {k}.",
                  "Find the code of the {k}.",
                  "I need the code of the {k}.",
                  "What was the code of the {k}?",
                  "Code of the {k}?",
                  "Which code belongs to the {k}?",
                  "Which code did the {k} get?",
                  "What code does the {k} use?",
                  "Which code was the {k} given?",
                  "What code opens the {k} here?",
                  "Look up the code of the {k}.",
                  "Do you remember the code of the {k}?",
                  "What code does the {k} have?",
                  "What code belongs to the {k}?",
                  "The code of the {k}, please.",
                  "Which code was it for the {k}?",
                  "Say the code of the {k}.",
                  "What is the code for the {k}?",
                  "What was given as the code of the {k}?",
                  "For the {k}, which code is right?",
                  test=("What code was given for the {k}?", "Please give me the code of the {k}.")), "The code of the {k} is {v}."),
    "phone": Kind(
        person_key, lambda draw: draw.code(6),
        phrasings("The phone number of {k} is {v}.",
                  "{k} has the phone number {v}.",
                  "Note: the phone number of {k} is {v}.",
                  "The number of {k} is {v}.",
                  "{k} can be called at {v}.",
                  "Keep in mind: the phone number of {k} is {v}.",
                  "You can call {k} at {v}.",
                  "Call {k} at {v}.",
                  "Phone number of {k}: {v}.",
                  "{v} is the phone number of {k}.",
                  "If you need {k}, dial {v}.",
                  test=("The number to call {k} is {v}.", )),
        phrasings("What is the phone number of {k}?",
                  "Tell me the phone number of {k}.",
                  "How can I call {k}?",
                  "{k}: which number is it?",
                  "Give me the phone number of {k}.",
                  "Find the phone number of {k}.",
                  "I need the phone number of {k}.",
                  "What was the phone number of {k}?",
                  "Which number belongs to {k}?",
                  "Which number does {k} use?",
                  "What number did {k} leave?",
                  "Which phone number was {k} given?",
                  "On which number does {k} answer?",
                  "Look up the number of {k}.",
                  "What number do I call for {k}?",
                  "What phone number does {k} have?",
                  "Which is the phone number of {k}?",
                  "The phone number of {k}, please.",
                  "At which number do I reach {k}?",
                  "Say the phone number of {k}.",
                  "Phone number of {k}?",
                  "What is the number of {k}?",
                  "Do you remember the phone number of {k}?",
                  "Which phone number belongs to {k}?",
                  test=("Which phone number does {k} have?", "Please give me the phone number of {k}.")),
        "The phone number of {k} is {v}."),
    "word": Kind(
        person_key, lambda draw: f"{draw.choice(WORDS)} {draw.choice(WORDS)}",
        phrasings("The secret words of {k} are {v}.",
                  "{k} chose the secret words {v}.",
                  "{k} has the secret words {v}.",
                  "Secret words of {k}: {v}.",
                  "Note: the secret words of {k} are {v}.",
                  "As for {k}, the secret words are {v}.",
                  "The secret words that {k} uses are {v}.",
                  test=("Remember that the secret words of {k} are {v}.", )),
        phrasings("What are the secret words of {k}?",
                  "Tell me the secret words of {k}.",
                  "Give me the secret words of {k}.",
                  "Find the secret words of {k}.",
                  "I need the secret words of {k}.",
                  "What were the secret words of {k}?",
                  "Which secret words belong to {k}?",
                  "What secret words did {k} have?",
                  "Which secret words does {k} have?",
                  "The secret words of {k}, please.",
                  "Say the secret words of {k}.",
                  "Secret words of {k}?",
                  "Do you remember the secret words of {k}?",
                  "Which were the secret words of {k}?",
                  "Which secret words does {k} use?",
                  "Which secret words did {k} write down?",
                  "What secret words did {k} pick?",
                  "Which words did {k} hide?",
                  "Which secret words has {k} got?",
                  "What are the secret words that {k} knows?",
                  "What are the words that {k} keeps secret?",
                  "Look up the secret words of {k}.",
                  test=("Which secret words did {k} choose?", )), "The secret words of {k} are {v}."),
}


def needles_of(draw, kind, count):
    """`count` pairs of different keys and their values."""
    pairs = {}
    while len(pairs) < count:
        pairs.setdefault(kind.key(draw), kind.value(draw))
    return list(pairs.items())


def haystack(draw, facts, tokens):
    """Facts in order at random places between sentences; about `tokens` tokens long."""
    sentences = max(0, round((tokens - 14 * len(facts)) / SENTENCE_TOKENS))
    places = sorted(draw.randint(0, sentences) for _ in facts)
    parts, next_fact = [], 0
    for i in range(sentences + 1):
        while next_fact < len(facts) and places[next_fact] == i:
            parts.append(facts[next_fact])
            next_fact += 1
        if i < sentences:
            parts.append(sentence(draw))
    lines, at = [], 0
    while at < len(parts):
        step = draw.between(3, 8)
        lines.append(" ".join(parts[at:at + step]))
        at += step
    return "\n".join(lines)


def reply(text):
    return {"role": "assistant", "content": text}


def needle_count(draw, name, tokens):
    return 1 if name == "passkey" else draw.between(2, 4 + min(tokens // 256, 16))


def document(draw, name, tokens, questions, needles=None):
    """A conversation of `questions` questions about one text of about `tokens` tokens."""
    kind = KINDS[name]
    pairs = needles_of(draw, kind, needles or needle_count(draw, name, tokens))
    facts = [draw.phrase(kind.needle, k=k, v=v) for k, v in pairs]
    body = haystack(draw, facts, tokens - 60)
    asked = draw.sample(pairs, min(questions, len(pairs)))
    messages = []
    for i, (k, v) in enumerate(asked):
        question = draw.asked(kind.question, k=k)
        if draw.split == "train" and question[-1] in ".?" and draw.chance(0.15):  # a name ends where the fact says, not the question
            question = f"{question[:-1]} {draw.strange(VOCABULARY)}{question[-1]}"
        content = question if i else f"{draw.phrase(INTROS)}\n\n{body}\n\n{question}"
        messages += [{"role": "user", "content": content, "_hay": i == 0}, reply(kind.answer.format(k=k, v=v))]
    return {"messages": messages}


def conversation(draw, longest):
    """Lengths are even on a logarithmic scale; half of the short documents are all needles."""
    name = draw.choice(("passkey", "code", "code", "phone", "word"))
    low, high = 96, max(128, longest - 220)
    tokens = int(low * (high / low)**draw.random())
    dense = name != "passkey" and draw.chance(0.5 if tokens <= 1024 else 0.15)
    needles = max(2, min(int(tokens / 20), 96)) if dense else None
    return document(draw, name, tokens, draw.between(2, 8), needles)
