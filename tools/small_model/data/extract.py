"""A record told in prose, and the JSON object that holds its fields."""
import json

from .draw import phrasings, requests
from .words import ADJECTIVES, CITIES, COLOURS, DAYS, FOODS, JOBS, MONTHS, NAMES, OBJECTS, PLACES, PRODUCTS, SURNAMES, VOCABULARY


def full_name(draw):
    return f"{draw.choice(NAMES)} {draw.choice(SURNAMES)}"


def title(draw):
    return f"The {draw.choice(ADJECTIVES).capitalize()} {draw.choice(OBJECTS).capitalize()}"


# Per kind: how each field is drawn, and texts that tell all of them.
KINDS = {
    "person": ({
        "name": full_name, "age": lambda d: d.between(18, 90), "city": lambda d: d.choice(CITIES), "job": lambda d: d.choice(JOBS)
    },
               phrasings("{name} is {age} years old, lives in {city} and works as a {job}.",
                         "In {city} there lives a {job} called {name}, who is {age} years old.",
                         "{name}, {age}, is a {job} from {city}.",
                         "The {job} {name} moved to {city} at the age of {age}.",
                         "My neighbour {name} works as a {job} in {city} and turned {age} last week.",
                         "Please welcome {name}! At {age}, our new {job} comes to us from {city}.",
                         "There is a {job} in {city}. The name is {name}, the age {age}.",
                         "{name} is a {job}. Home is {city}, and the age is {age}.",
                         "Meet {name}, a {age} year old {job} who lives in {city}.",
                         "At {age}, {name} still works as a {job} in {city}.",
                         "Name: {name}. Age: {age}. City: {city}. Job: {job}.",
                         "From {city} comes {name}, {age} years old and a {job}.",
                         "A {job} of {age} years, {name}, has a house in {city}.",
                         "Since last year {name} ({age}) has been a {job} in {city}.",
                         "I met {name} in {city}: a {job}, {age} years old.",
                         "{city} has a new {job}: {name}, aged {age}.",
                         test=("The {job} from {city} is called {name} and is {age} years old.",
                               "{name} lives in {city}, is {age} years old and works as a {job}."))),
    "product": ({
        "item": lambda d: d.choice(PRODUCTS), "colour": lambda d: d.choice(COLOURS), "price": lambda d: d.between(5, 950),
        "stock": lambda d: d.between(0, 99)
    },
                phrasings("The {colour} {item} costs {price} coins, and there are {stock} in stock.",
                          "We have {stock} pieces of the {item} in {colour}. It costs {price} coins.",
                          "For {price} coins you get the {item} in {colour}; {stock} are left.",
                          "There are {stock} of the {colour} {item} left, for {price} coins each.",
                          "Our {item} comes in {colour}. The price is {price} coins and the stock is {stock}.",
                         "The {item} is {colour}, costs {price} coins and there are {stock} of it.",
                         "Buy the {colour} {item} for {price} coins! Only {stock} are left.",
                         "Item: {item}. Colour: {colour}. Price: {price}. Stock: {stock}.",
                         "In stock we have {stock} of the {item}. It is {colour} and costs {price} coins.",
                         "A {colour} {item} is {price} coins, and {stock} pieces are here.",
                         "{stock} times the {item} in {colour}, {price} coins each.",
                         "You pay {price} coins for a {colour} {item}. We still have {stock}.",
                         "The shop sells a {item}. It is {colour}. The price: {price} coins. Left: {stock}.",
                         "Our stock of the {colour} {item} is {stock}, and one costs {price} coins.",
                          test=("The {item} in {colour} costs {price} coins; {stock} are in stock.",
                                "There are {stock} pieces of the {colour} {item}. The price is {price} coins."))),
    "trip": ({
        "from": lambda d: d.choice(CITIES), "to": lambda d: d.choice(CITIES), "day": lambda d: d.choice(DAYS),
        "passengers": lambda d: d.between(1, 60)
    },
             phrasings("On {day}, {passengers} passengers travel from {from} to {to}.",
                       "The bus from {from} to {to} leaves on {day} with {passengers} passengers.",
                       "{passengers} passengers go to {to} on {day}; they start in {from}.",
                       "We start in {from} on {day} and arrive in {to} with {passengers} passengers.",
                       "The {day} train to {to} comes from {from} and carries {passengers} passengers.",
                         "The ship leaves {from} for {to} on {day}. It carries {passengers} passengers.",
                         "From {from} to {to}: {day}, {passengers} passengers.",
                         "A group of {passengers} passengers leaves {from} on {day} and goes to {to}.",
                         "To {to} go {passengers} passengers from {from} on {day}.",
                         "Next {day} the plane flies from {from} to {to}. {passengers} passengers are on board.",
                         "From: {from}. To: {to}. Day: {day}. Passengers: {passengers}.",
                         "It is {day}. In {from}, {passengers} passengers wait for the train to {to}.",
                         "The coach with {passengers} passengers is on its way to {to}; it left {from} on {day}.",
                         "On {day} we go to {to}. We are {passengers} passengers and come from {from}.",
                       test=("The train from {from} to {to} carries {passengers} passengers on {day}.",
                             "On {day} the bus from {from} goes to {to} with {passengers} passengers."))),
    "book": ({"title": title, "author": full_name, "year": lambda d: d.between(1900, 2020), "pages": lambda d: d.between(40, 900)},
             phrasings("{title} was written by {author} in {year} and has {pages} pages.",
                       "In {year}, {author} published {title}, a book of {pages} pages.",
                       "The book {title} by {author} has {pages} pages and came out in {year}.",
                       "{author} wrote {title}. It has {pages} pages and appeared in {year}.",
                       "With its {pages} pages, {title} by {author} is a long read; it was printed in {year}.",
                         "{title} is a book by {author}. It came out in {year} and is {pages} pages long.",
                         "{pages} pages, written in {year}: {title} by {author}.",
                         "In {year} came {title}, {pages} pages long and written by {author}.",
                         "Title: {title}. Author: {author}. Year: {year}. Pages: {pages}.",
                         "I am reading {title}, which {author} wrote in {year}. It has {pages} pages.",
                         "{author} is known for {title} ({year}), which has {pages} pages.",
                         "A book of {pages} pages by {author} is called {title}; its year is {year}.",
                         "The author {author} finished {title} in {year}, after {pages} pages.",
                         "{title}, {pages} pages, is from {year}. {author} wrote it.",
                       test=("{author} published {title} in {year}. It has {pages} pages.",
                             "The book {title} was written by {author}, came out in {year} and has {pages} pages."))),
    "event": ({
        "event": lambda d: d.choice(
            ("concert", "meeting", "party", "lecture", "market", "race", "play", "dance")), "place": lambda d: d.choice(PLACES),
        "month": lambda d: d.choice(MONTHS), "day": lambda d: d.between(1, 28), "guests": lambda d: d.between(5, 500)
    },
              phrasings("The {event} takes place at the {place} on {month} {day}; {guests} guests are expected.",
                        "On {month} {day} we invite {guests} guests to the {event} at the {place}.",
                        "{guests} guests will come to the {event} on {month} {day}. It is held at the {place}.",
                        "Come to the {place} on {month} {day}! The {event} has room for {guests} guests.",
                         "The {event} is on {month} {day} at the {place}, for {guests} guests.",
                         "{month} {day}: {event} at the {place}, {guests} guests.",
                         "We hold a {event} with {guests} guests. The place is the {place}, the date {month} {day}.",
                         "At the {place} there will be a {event} on {month} {day}. {guests} guests come.",
                         "Event: {event}. Place: {place}. Date: {month} {day}. Guests: {guests}.",
                         "On {month} {day} the {place} is full of guests: {guests} come to the {event}.",
                         "Our {event} is planned for {month} {day}. We have {guests} guests and meet at the {place}.",
                         "{guests} guests were invited to the {place} for a {event} on {month} {day}.",
                         "A {event} is held on {month} {day}; {guests} guests meet at the {place}.",
                        test=("At the {place}, a {event} takes place on {month} {day} with {guests} guests.",
                              "We expect {guests} guests at the {event} on {month} {day}, held at the {place}."))),
    "order": ({
        "customer": full_name, "dish": lambda d: d.choice(FOODS), "quantity": lambda d: d.between(1, 12),
        "table": lambda d: d.between(1, 40), "paid": lambda d: d.chance(0.5)
    },
              phrasings("{customer} at table {table} orders {quantity} portions of {dish}. The bill is {paid}.",
                        "Table {table}: {quantity} portions of {dish} for {customer}. The bill is {paid}.",
                        "We bring {quantity} portions of {dish} to {customer} at table {table}. The bill is {paid}.",
                         "{customer} wants {quantity} portions of {dish} at table {table}. The bill is {paid}.",
                         "At table {table} sits {customer}. The order is {quantity} portions of {dish}. The bill is {paid}.",
                         "{dish} for {customer}: {quantity} portions, table {table}. The bill is {paid}.",
                         "The bill of {customer} is {paid}. Table {table} had {quantity} portions of {dish}.",
                         "Customer: {customer}. Dish: {dish}. Quantity: {quantity}. Table: {table}. Bill: {paid}.",
                         "Please bring {customer} {quantity} portions of {dish}. It is table {table}, and the bill is {paid}.",
                         "{quantity} times {dish} for table {table}. {customer} ordered it, and the bill is {paid}.",
                         "The bill is {paid}: {customer}, table {table}, had {quantity} portions of {dish}.",
                         "There are {quantity} portions of {dish} on table {table}. They are for {customer}. The bill is {paid}.",
                        test=("{quantity} portions of {dish} go to {customer} at table {table}. The bill is {paid}.", ))),
}

TEXT = ("the text", "this text", "the text below", "what follows", "the following text", "this sentence", "it", "the note")
FIELDS = ("{f}", "the fields {f}", "the keys {f}", "the values of {f}", "exactly {f}", "only {f}", "the entries {f}")
ACTIONS = ("extract {F} from {T} as JSON", "return {F} as a JSON object", "return {F} of {T} in JSON", "give me {F} as JSON",
           "turn {T} into JSON with {F}", "write {T} as JSON with {F}", "read {T} and return JSON with {F}",
           "find {F} in {T} and answer in JSON", "make a JSON object with {F} out of {T}", "put {F} into a JSON object",
           "convert {T} to JSON; use {F}", "pull {F} out of {T} as a JSON object", "answer with JSON that has {F}", "list {F} as JSON")
REQUESTS = requests(*(action.replace("{F}", fields).replace("{T}", text) for action in ACTIONS for fields in FIELDS for text in TEXT),
                    test=("Please extract {f} from the text as a JSON object.", "Return the fields {f} of this text as JSON."))
JOINS = (", ", ", ", ", ", " and ", "; ", " | ")


def renamed(draw, record):
    """In training keys are often called otherwise, and the request says what they stand for."""
    if draw.split != "train" or not draw.chance(0.5):
        return {key: (key, value) for key, value in record.items()}
    names = {}
    for key, value in record.items():
        name = draw.identifier(list(record) if draw.chance(0.3) else VOCABULARY) if draw.chance(0.6) else key
        names.setdefault(name, (key, value))
    return names


def quoted(draw, name, likely=0.2):
    """In quotes a strange name is the same tokens as in the object that is asked for."""
    return f'"{name}"' if draw.split == "train" and draw.chance(likely) else name


def told(value):
    return {True: "paid", False: "open"}.get(value, value) if isinstance(value, bool) else value


def question(draw):
    """The request and the object."""
    fields, texts = KINDS[draw.choice(list(KINDS))]
    record = {key: make(draw) for key, make in fields.items()}
    while "from" in record and record["from"] == record["to"]:
        record["to"] = fields["to"](draw)
    text = draw.phrase(texts, **{k: told(v) for k, v in record.items()})
    keys = list(record)
    if draw.chance(0.5):
        keys = draw.sample(keys, draw.between(2, len(keys)))
    names = renamed(draw, {k: record[k] for k in keys})
    shown = [quoted(draw, name) if name == key else f"{quoted(draw, name, 0.7)} (the {key})" for name, (key, _) in names.items()]
    request = draw.phrase(REQUESTS, f=(draw.choice(JOINS) if draw.split == "train" else ", ").join(shown))
    content = f"{request}\n\n{text}" if draw.chance(0.7) else f"{text}\n\n{request}"
    return content, {name: value for name, (_, value) in names.items()}


def turn(draw):
    content, record = question(draw)
    return [{"role": "user", "content": content}, {"role": "assistant", "content": json.dumps(record, ensure_ascii=False)}]


def conversation(draw):
    messages = []
    for _ in range(1 if draw.split != "train" else draw.between(1, 3)):
        messages += turn(draw)
    return {"messages": messages}
