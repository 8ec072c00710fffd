"""Conversations of several turns: greetings, questions about the model, explanations, advice, names to remember, sometimes a task."""
from pathlib import Path

from . import arithmetic, extract, lists, stories, tables
from .draw import Phrasings, either, phrasings, requests
from .words import ANIMALS, CITIES, COLOURS, JOBS, NAMES

HERE = Path(__file__).parent


def read_small_talk():
    """Intents: phrasings and the answer."""
    intents = []
    for block in (HERE / "small_talk.txt").read_text().split("\n\n")[1:]:
        lines = [(line[0], line[2:]) for line in block.strip().split("\n")]
        said = {mark: tuple(text for m, text in lines if m == mark) for mark in ">?="}
        assert len(said["="]) == 1, block
        intents.append((Phrasings(said[">"], said["?"]), said["="][0]))
    return intents


def read_facts():
    lines = (HERE / "facts.txt").read_text().strip().split("\n")
    return dict(line.split(": ", 1) for line in lines if not line.startswith("#"))


SMALL_TALK = read_small_talk()
FACTS = read_facts()
GREETING, THANKS, BYE = 0, 14, 15
EXPLAIN = either(
    requests("explain {k} to me", "explain what {k} is", "tell me about {k}", "tell me what {k} is", "describe {k}",
             "say something about {k}", "teach me about {k}", "tell me something about {k}", "give me a short text about {k}",
             "write about {k}"),
    phrasings("What is {k}?",
              "What do you know about {k}?",
              "I would like to know what {k} is.",
              "{k}: what is that?",
              "What does {k} mean?",
              "Do you know what {k} is?",
              "I want to learn about {k}.",
              "What exactly is {k}?",
              "Have you heard of {k}?",
              test=("Could you tell me what {k} is?", "Please explain {k}.", "What can you say about {k}?")))

# What a user says about herself, and how it is asked for later.
ABOUT = (
    (NAMES, phrasings("My name is {v}.", "I am {v}.", "Hello, I am {v}.", "You can call me {v}.",
                     "They call me {v}.",
                     "People call me {v}.",
                     "I am called {v}.",
                     "The name is {v}.",
                     "This is {v}.",
                      test=("Hi, my name is {v}.", )), "Nice to meet you, {v}!",
     phrasings("What is my name?", "Do you remember my name?", "How am I called?",
                        "What do people call me?",
                        "Say my name.",
                        "Tell me my name.",
                        "Which name did I give you?",
                        "Who am I?",
               test=("Can you tell me my name?", )), "Your name is {v}."),
    (CITIES, phrasings("I live in {v}.", "My home is in {v}.", "I come from {v}.",
                        "I am from {v}.",
                        "My house is in {v}.",
                        "I moved to {v} last year.",
                        "{v} is my home.",
                        "We live in {v}.",
                       test=("I have lived in {v} for years.", )), "I have heard that {v} is a nice place.",
     phrasings("Where do I live?", "In which city do I live?",
                        "Where is my home?",
                        "Tell me where I live.",
                        "Which city am I from?",
                        "What is my home town?", test=("Can you tell me where I live?", )), "You live in {v}."),
    (COLOURS, phrasings("My favourite colour is {v}.", "I like the colour {v} best.",
                          "The best colour is {v}, I think.",
                          "I love {v}, it is my colour.",
                          "No colour is as nice as {v}.",
                          "{v} is my favourite colour.",
                        test=("The colour that I like best is {v}.", )), "{v} is a beautiful colour.",
     phrasings("What is my favourite colour?", "Which colour do I like best?",
                          "Tell me my favourite colour.",
                          "What colour do I like?",
                          "Which is my colour?",
                          "Name the colour that I like.",
               test=("Do you know my favourite colour?", )), "Your favourite colour is {v}."),
    (ANIMALS, phrasings("I have a {v} at home.", "My pet is a {v}.", "I own a {v}.",
                          "There is a {v} in my house.",
                          "We keep a {v}.",
                          "My family has a {v}.",
                          "At home I have a {v}.",
                        test=("A {v} lives in my house.", )), "A {v} must be good company.",
     phrasings("Which pet do I have?", "What animal do I have?",
                          "Tell me what pet I have.",
                          "Which animal lives with me?",
                          "What is my pet?",
                          "Say what animal I keep.", test=("Do you remember my pet?", )), "You have a {v}."),
    (JOBS, phrasings("I work as a {v}.", "I am a {v}.", "My job is {v}.",
                        "I am working as a {v}.",
                        "They pay me as a {v}.",
                        "I have a job as a {v}.",
                        "I became a {v} last year.",
                     test=("I earn my money as a {v}.", )), "That sounds like interesting work.",
     phrasings("What is my job?", "What do I work as?",
                        "Tell me my job.",
                        "What is my work?",
                        "Which job do I have?",
                        "Say what I work as.", test=("Can you tell me my job?", )), "You work as a {v}."),
)

SYSTEMS = phrasings("You are a helpful assistant.",
                    "You are a friendly assistant.",
                    "You are a helpful assistant. Answer briefly.",
                    "You help people with small questions.",
                    "Be kind and helpful.",
                    "Answer the questions of the user.",
                    test=("You are a kind assistant who answers questions.", ))
PERSONA = phrasings("Your name is {v}.",
                    "You are {v}, a helpful assistant.",
                    "You are called {v}.",
                    test=("You are an assistant called {v}.", ))
PERSONA_ASKS = phrasings("What is your name?", "Who are you?", "What are you called?", test=("May I ask your name?", ))


def said(question, answer, reasoning=""):
    return [{"role": "user", "content": question}, {"role": "assistant", "reasoning_content": reasoning, "content": answer}]


def talk(draw, intent=None):
    asks, answer = SMALL_TALK[draw.randrange(len(SMALL_TALK)) if intent is None else intent]
    return said(draw.asked(asks), answer)


def explain(draw):
    key = draw.choice(list(FACTS))
    return said(draw.phrase(EXPLAIN, k=key), FACTS[key])


def table(draw):
    question, answer, _ = tables.question(draw)
    return said(question, answer)


TASKS = (arithmetic.turn, lists.turn, extract.turn, lambda d: stories.turn(d, stories.copy), lambda d: stories.turn(d, stories.story))


def one_turn(draw):
    kind = draw.random()
    if kind < 0.35:
        return talk(draw)
    if kind < 0.65:
        return explain(draw)
    return table(draw) if kind < 0.85 else draw.choice(TASKS)(draw)


def capital(text):
    return text[0].upper() + text[1:]


def conversation(draw):
    messages = []
    persona = None
    if draw.chance(0.25):
        persona = draw.choice(NAMES) if draw.chance(0.4) else None
        messages.append({"role": "system", "content": draw.phrase(PERSONA, v=persona) if persona else draw.phrase(SYSTEMS)})
    if draw.chance(0.3):
        messages += talk(draw, GREETING)
    if persona and draw.chance(0.7):
        messages += said(draw.phrase(PERSONA_ASKS), f"My name is {persona}.")
    turns = []
    for _ in range(draw.between(1, 5)):
        turn = one_turn(draw)
        # A persona has another name than the one in the small talk.
        turns.append(explain(draw) if persona and "Baton" in turn[-1]["content"] else turn)
    if draw.chance(0.25):
        values, tells, reply, asks, answer = draw.choice(ABOUT)
        value = draw.choice(values)
        at = draw.randint(0, len(turns))
        turns.insert(draw.randint(at, len(turns)), said(draw.phrase(asks), answer.format(v=value)))
        turns.insert(at, said(draw.phrase(tells, v=value), capital(reply.format(v=value))))
    for turn in turns:
        messages += turn
    if draw.chance(0.2):
        messages += talk(draw, THANKS)
    if draw.chance(0.15):
        messages += talk(draw, BYE)
    return {"messages": messages}
