"""Small tables of common knowledge, asked row by row."""
from .draw import phrasings

CAPITALS = dict(
    zip(
        "France Germany Spain Italy Portugal Austria Poland Greece Norway Sweden Denmark Finland Ireland Belgium Hungary Japan China India "
        "Egypt Canada Russia Turkey Peru Cuba Chile Kenya".split(),
        "Paris Berlin Madrid Rome Lisbon Vienna Warsaw Athens Oslo Stockholm Copenhagen Helsinki Dublin Brussels Budapest Tokyo Beijing "
        "Delhi Cairo Ottawa Moscow Ankara Lima Havana Santiago Nairobi".split()))
OPPOSITES = dict(
    pair.split("-") for pair in
    "hot-cold big-small long-short old-new fast-slow high-low light-dark wet-dry hard-soft full-empty early-late rich-poor strong-weak "
    "open-closed loud-quiet happy-sad clean-dirty near-far thick-thin wide-narrow sweet-sour young-old good-bad left-right up-down "
    "deep-shallow heavy-light true-false warm-cool first-last day-night summer-winter love-hate buy-sell win-lose".split())
YOUNG = dict(
    pair.split("-") for pair in
    "cat-kitten dog-puppy cow-calf horse-foal sheep-lamb goat-kid pig-piglet duck-duckling hen-chick goose-gosling bear-cub lion-cub "
    "deer-fawn swan-cygnet frog-tadpole".split())
SOUNDS = dict(
    pair.split("-") for pair in
    "cat-meows dog-barks cow-moos horse-neighs sheep-bleats pig-grunts duck-quacks hen-clucks lion-roars wolf-howls frog-croaks owl-hoots "
    "bee-buzzes mouse-squeaks snake-hisses crow-caws".split())
LEGS = {
    "dog": "four", "cat": "four", "horse": "four", "cow": "four", "bird": "two", "duck": "two", "spider": "eight", "ant": "six",
    "bee": "six", "fish": "no", "snake": "no", "frog": "four", "hen": "two", "crab": "ten"
}
COLOUR_OF = {
    "grass": "green", "snow": "white", "the sun": "yellow", "blood": "red", "coal": "black", "the sea": "blue", "a lemon": "yellow",
    "a carrot": "orange", "chocolate": "brown", "milk": "white", "a banana": "yellow", "a cherry": "red", "a cucumber": "green",
    "the night sky": "black", "an orange": "orange"
}
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday Monday".split()
MONTHS = "January February March April May June July August September October November December January".split()

# Table, how it is asked for (k the key), how it is answered (v the value).
TABLES = (
    (CAPITALS,
     phrasings("What is the capital of {k}?",
               "Which city is the capital of {k}?",
               "Tell me the capital of {k}.",
               "{k}: what is its capital?",
               test=("Do you know the capital of {k}?", "Please name the capital of {k}.")), "The capital of {k} is {v}."),
    (OPPOSITES,
     phrasings("What is the opposite of {k}?",
               "Tell me the opposite of {k}.",
               "Which word means the opposite of {k}?",
               test=("Do you know the opposite of {k}?", "Please name the opposite of {k}.")), "The opposite of {k} is {v}."),
    (YOUNG,
     phrasings("What is a young {k} called?",
               "How do you call a young {k}?",
               "What do we call the young of a {k}?",
               test=("Do you know what a young {k} is called?", )), "A young {k} is called a {v}."),
    (SOUNDS,
     phrasings("What sound does a {k} make?",
               "Which sound does the {k} make?",
               "How does a {k} sound?",
               test=("Do you know which sound a {k} makes?", )), "The {k} {v}."),
    (LEGS,
     phrasings("How many legs does a {k} have?",
               "Tell me how many legs a {k} has.",
               "What is the number of legs of a {k}?",
               test=("Do you know how many legs a {k} has?", )), "A {k} has {v} legs."),
    (COLOUR_OF,
     phrasings("What colour is {k}?",
               "Which colour does {k} have?",
               "Tell me the colour of {k}.",
               test=("Do you know the colour of {k}?", )), "The colour of {k} is {v}."),
    (dict(zip(DAYS, DAYS[1:])),
     phrasings("Which day comes after {k}?",
               "What day follows {k}?",
               "If today is {k}, what is tomorrow?",
               test=("Tell me the day after {k}.", )), "The day after {k} is {v}."),
    (dict(zip(DAYS[1:], DAYS)),
     phrasings("Which day comes before {k}?",
               "If today is {k}, what was yesterday?",
               "What day was it before {k}?",
               test=("Tell me the day before {k}.", )), "The day before {k} is {v}."),
    (dict(zip(MONTHS, MONTHS[1:])),
     phrasings("Which month comes after {k}?",
               "What month follows {k}?",
               "What is the next month after {k}?",
               test=("Tell me the month after {k}.", )), "The month after {k} is {v}."),
)


def question(draw):
    """What is asked, the answer, and the word that matters in it."""
    table, asks, answer = draw.choice(TABLES)
    key = draw.choice(list(table))
    return draw.asked(asks, k=key), answer.format(k=key, v=table[key]), table[key]
