"""Functions that a model can be offered. Each has several names and parameter names, some of which only tests use."""
from dataclasses import dataclass

from .draw import Phrasings, phrasings
from .words import ADJECTIVES, ANIMALS, CITIES, DAYS, FOODS, NAMES, OBJECTS, PRODUCTS, SURNAMES, THINGS


@dataclass(frozen=True)
class Parameter:
    names: Phrasings
    kind: str  # JSON schema type
    about: str
    make: object  # draw -> value


@dataclass(frozen=True)
class Function:
    names: Phrasings
    about: str
    parameters: dict  # slot -> Parameter
    asks: Phrasings   # with the slots
    result: object    # (draw, values) -> object that the tool returns
    answer: str       # with the slots and the result's keys


def clock(d):
    return f"{d.between(0, 23):02d}:{d.between(0, 11) * 5:02d}"


def person(d):
    return d.choice(NAMES)


def city(*names, test=(), about="Name of the city"):
    known = phrasings(*(names or ("city", "location", "place")), test=test or ("town",))
    return Parameter(known, "string", about, lambda d: d.choice(CITIES))


DAY = Parameter(phrasings("day", "weekday", test=("on_day",)), "string", "Day of the week", lambda d: d.choice(DAYS))
CURRENCIES = ("euro", "dollar", "pound", "franc", "crown", "yen")
LANGUAGES = ("French", "German", "Spanish", "Italian", "Dutch", "Polish", "Greek", "Danish")
ROOMS = ("kitchen", "bedroom", "bathroom", "hall", "office", "cellar", "garage", "library")
MESSAGES = ("I am on my way", "see you tomorrow", "dinner is ready", "the meeting starts soon", "thank you for the help", "call me back",
            "I will be late", "the train is late", "happy birthday", "please bring bread")


def amount(*names, test=(), about="Amount", low=2, high=900):
    return Parameter(phrasings(*names, test=test), "integer", about, lambda d: d.between(low, high))


FUNCTIONS = {
    "weather": Function(
        phrasings("get_weather", "weather_report", "fetch_weather", "current_weather", test=("check_weather", "weather_lookup")),
        "Get the weather of a city", {"c": city()},
        phrasings("What is the weather in {c}?", "How is the weather in {c} today?", "Tell me the weather in {c}.", "Is it warm in {c}?",
                  "I would like to know the weather in {c}.",
                  "Get me the weather of {c}.",
                  "Do I need an umbrella in {c}?",
                  "{c}: what is the weather?",
                  "How warm is it in {c}?",
                  "Find out what the weather in {c} is.",
                  "Show the weather for {c}.",
                  "Is the sky clear in {c}?",
                  "Give me the weather in {c}.",

                  test=("Please check the weather in {c}.", "What is the weather like in {c}?")),
        lambda d, v: {"temperature": d.between(-9, 38), "sky": d.choice(("clear", "cloudy", "rainy", "foggy", "snowy"))},
        "In {c} it is {temperature} degrees and {sky}."),
    "forecast": Function(
        phrasings("get_forecast", "weather_forecast", "fetch_forecast", test=("check_forecast",)), "Get the forecast of a city for a day",
        {"c": city(), "d": DAY},
        phrasings("What will the weather be in {c} on {d}?", "Give me the forecast for {c} on {d}.", "Will it rain in {c} on {d}?",
                  "How will the weather be on {d} in {c}?",
                  "On {d} I am in {c}. What will the weather be?",
                  "Tell me the forecast of {c} for {d}.",
                  "I need the forecast for {d} in {c}.",
                  "Find the forecast of {c} for {d}.",
                  "Is {d} going to be warm in {c}?",
                  "Forecast for {c}, {d}?",
                  "Show me what the weather will be in {c} on {d}.",
                  "Get the forecast for {c} on {d}.",

                  test=("Please look up the forecast for {c} on {d}.",)),
        lambda d, v: {"high": d.between(0, 38), "rain": d.between(0, 100)},
        "On {d} it will be up to {high} degrees in {c}, with a {rain} percent chance of rain."),
    "time": Function(
        phrasings("get_time", "current_time", "local_time", test=("time_lookup",)), "Get the local time of a city", {"c": city()},
        phrasings("What time is it in {c}?", "Tell me the time in {c}.", "How late is it in {c}?",
                  "Which time is it in {c} now?",
                  "Give me the local time in {c}.",
                  "Say what time it is in {c}.",
                  "I need the time in {c}.",
                  "{c}: what time is it there?",
                  "Find the local time of {c}.",
                  "Show me the time in {c}.",
                  "What does the clock say in {c}?",
                  "Look up the time in {c}.",

                  test=("What is the local time in {c}?",)),
        lambda d, v: {"time": clock(d)}, "It is {time} in {c}."),
    "alarm": Function(
        phrasings("set_alarm", "create_alarm", "add_alarm", test=("new_alarm",)), "Set an alarm",
        {"t": Parameter(phrasings("time", "at", test=("alarm_time",)), "string", "Time as HH:MM", clock)},
        phrasings("Set an alarm for {t}.", "Wake me up at {t}.", "I need an alarm at {t}.",
                  "Make an alarm for {t}.",
                  "An alarm at {t}, please.",
                  "Let the alarm ring at {t}.",
                  "Add an alarm at {t}.",
                  "I have to get up at {t}. Set an alarm.",
                  "Can my alarm ring at {t}?",
                  "Get me out of bed at {t}.",
                  "Create an alarm: {t}.",
                  "Set my clock to wake me at {t}.",
                  test=("Please set the alarm for {t}.",)),
        lambda d, v: {"ok": True}, "The alarm is set for {t}."),
    "message": Function(
        phrasings("send_message", "send_text", "message_contact", test=("text_contact",)), "Send a message to a person",
        {"n": Parameter(phrasings("to", "recipient", "name", test=("contact",)), "string", "Who gets the message", person),
         "m": Parameter(phrasings("text", "message", "body", test=("content",)), "string", "What the message says",
                        lambda d: d.choice(MESSAGES))},
        phrasings("Send a message to {n}: {m}", "Text {n}: {m}", "Write to {n}: {m}",
                  "Send {n} a text: {m}",
                  "Tell {n} this: {m}",
                  "I want to send a message to {n}: {m}",
                  "Let {n} know: {m}",
                  "Send this to {n}: {m}",
                  "Message {n}: {m}",
                  "A message for {n}: {m}",
                  "Write a message to {n}. It says: {m}",
                  "Pass this on to {n}: {m}",
                  test=("Please send {n} this message: {m}",)),
        lambda d, v: {"sent": True}, "The message to {n} was sent."),
    "table": Function(
        phrasings("book_table", "reserve_table", "make_reservation", test=("table_booking",)), "Book a table in a restaurant",
        {"c": city(), "g": amount("guests", "people", "seats", test=("party_size",), about="Number of guests", high=20), "d": DAY},
        phrasings("Book a table for {g} people in {c} on {d}.", "Reserve a table in {c} for {g} on {d}.",
                  "I would like a table for {g} in {c} on {d}.",
                  "In {c} we are {g} guests on {d}. Book a table.",
                  "Get me a table for {g} in {c} on {d}.",
                  "On {d} I need a table for {g} people in {c}.",
                  "Make a reservation in {c} for {d}, {g} people.",
                  "We want to eat in {c} on {d}. We are {g}.",
                  "Reserve seats for {g} guests on {d} in {c}.",
                  "A table for {g} on {d} in {c}.",
                  "Find a table in {c} on {d} for {g} guests.",
                  "Can we have a table for {g} in {c} on {d}?",
                  test=("Please book a table in {c} for {g} guests on {d}.",)),
        lambda d, v: {"code": d.code(4)}, "The table for {g} in {c} on {d} is booked. The code is {code}."),
    "convert": Function(
        phrasings("convert_currency", "currency_converter", "exchange_money", test=("money_converter",)), "Convert money",
        {"a": amount("amount", "value", test=("sum",), about="Amount of money"),
         "f": Parameter(phrasings("from", "source", test=("from_currency",)), "string", "Currency to convert from",
                        lambda d: d.choice(CURRENCIES[:3])),
         "t": Parameter(phrasings("to", "target", test=("to_currency",)), "string", "Currency to convert to",
                        lambda d: d.choice(CURRENCIES[3:]))},
        phrasings("Convert {a} {f} to {t}.", "How much is {a} {f} in {t}?", "Change {a} {f} into {t}.",
                  "I have {a} {f} and need {t}.",
                  "Turn {a} {f} into {t}.",
                  "Exchange {a} {f} for {t}.",
                  "How many {t} do I get for {a} {f}?",
                  "What is {a} {f} worth in {t}?",
                  "Give me {a} {f} in {t}.",
                  "Convert to {t}, from {f}: {a}.",
                  "Find out how much {a} {f} is in {t}.",
                  "I want to change {a} {f} to {t}.",

                  test=("What are {a} {f} in {t}?",)),
        lambda d, v: {"result": d.between(2, 990)}, "{a} {f} are {result} {t}."),
    "lights": Function(
        phrasings("set_light", "switch_light", "control_light", test=("light_control",)), "Switch the light of a room",
        {"r": Parameter(phrasings("room", "area", test=("where",)), "string", "Name of the room", lambda d: d.choice(ROOMS)),
         "s": Parameter(phrasings("on", "power", test=("enabled",)), "boolean", "Whether the light is on", lambda d: d.chance(0.5))},
        phrasings("Switch {s} the light in the {r}.", "Turn {s} the light in the {r}.", "Please turn the {r} light {s}.",
                  "Make the light in the {r} go {s}.",
                  "Light {s} in the {r}.",
                  "The {r} light should be {s}.",
                  "Set the light of the {r} to {s}.",
                  "In the {r}, turn the light {s}.",
                  "Can you switch the {r} light {s}?",
                  "I need the light {s} in the {r}.",
                  "Put the light {s} in the {r}.",
                  "Turn the light {s} in the {r}.",

                  test=("I want the light in the {r} {s}.", "Please switch the {r} light {s}.")),
        lambda d, v: {"ok": True}, "The light in the {r} is {s}."),
    "translate": Function(
        phrasings("translate_text", "translate", "translate_words", test=("text_translator",)), "Translate text",
        {"w": Parameter(phrasings("text", "words", test=("phrase",)), "string", "What to translate",
                        lambda d: f"{d.choice(ADJECTIVES)} {d.choice(ANIMALS)}"),
         "l": Parameter(phrasings("language", "target", test=("into",)), "string", "Language to translate into",
                        lambda d: d.choice(LANGUAGES))},
        phrasings("Translate {w} into {l}.", "How do you say {w} in {l}?", "What is {w} in {l}?",
                  "Tell me {w} in {l}.",
                  "I need {w} in {l}.",
                  "Give me the {l} for {w}.",
                  "How is {w} called in {l}?",
                  "Say {w} in {l}.",
                  "What would {w} be in {l}?",
                  "Put {w} into {l}.",
                  "Write {w} in {l}.",
                  "Find the {l} words for {w}.",
                  test=("Please translate {w} to {l}.",)),
        lambda d, v: {"translation": f"{d.choice(OBJECTS)} {d.choice(OBJECTS)}"}, "In {l} this is {translation}."),
    "price": Function(
        phrasings("get_price", "price_lookup", "find_price", test=("check_price",)), "Get the price of a product",
        {"i": Parameter(phrasings("item", "product", test=("article",)), "string", "Name of the product", lambda d: d.choice(PRODUCTS))},
        phrasings("How much is the {i}?", "What does the {i} cost?", "Tell me the price of the {i}.",
                  "What is the price of the {i}?",
                  "How much does the {i} cost?",
                  "Find the price of the {i}.",
                  "I want to know what the {i} costs.",
                  "What do I pay for the {i}?",
                  "Give me the price of the {i}.",
                  "Is the {i} expensive?",
                  "Price of the {i}?",
                  "Get the price for the {i}.",

                  test=("Please look up the price of the {i}.",)),
        lambda d, v: {"price": d.between(3, 990)}, "The {i} costs {price} coins."),
    "route": Function(
        phrasings("find_route", "get_route", "plan_trip", test=("route_planner",)), "Find the way between two cities",
        {"a": Parameter(phrasings("from", "start", "origin", test=("departure",)), "string", "Where the trip starts",
                        lambda d: d.choice(CITIES[:13])),
         "b": Parameter(phrasings("to", "end", "destination", test=("arrival",)), "string", "Where the trip ends",
                        lambda d: d.choice(CITIES[13:]))},
        phrasings("How do I get from {a} to {b}?", "Find a route from {a} to {b}.", "How long is the trip from {a} to {b}?",
                  "I want to go from {a} to {b}.",
                  "What is the way from {a} to {b}?",
                  "Show me the way from {a} to {b}.",
                  "From {a} to {b}, how do I travel?",
                  "Which line goes from {a} to {b}?",
                  "Get me from {a} to {b}.",
                  "I am in {a} and have to go to {b}.",
                  "Give me the route from {a} to {b}.",
                  "Look for a route from {a} to {b}.",

                  test=("Please plan a trip from {a} to {b}.",)),
        lambda d, v: {"minutes": d.between(10, 300), "line": d.between(1, 99)},
        "Take line {line} from {a} to {b}. The trip takes {minutes} minutes."),
    "user": Function(
        phrasings("get_user", "find_user", "load_user", test=("user_lookup",)), "Look up a user by number",
        {"u": amount("id", "user_id", "number", test=("user_number",), about="Number of the user", low=100, high=9999)},
        phrasings("Who is user {u}?", "Look up user {u}.", "Show me user {u}.",
                  "Find user {u}.",
                  "Which user has the number {u}?",
                  "Tell me who user {u} is.",
                  "I need the data of user {u}.",
                  "Get user {u}.",
                  "User {u}: who is it?",
                  "Load user number {u}.",
                  "What is the name of user {u}?",
                  "Give me user {u}.",
                  test=("Please find the user with number {u}.",)),
        lambda d, v: {"name": f"{d.choice(NAMES)} {d.choice(SURNAMES)}", "city": d.choice(CITIES)}, "User {u} is {name} from {city}."),
    "stock": Function(
        phrasings("check_stock", "get_stock", "stock_level", test=("stock_lookup",)), "See how many pieces are in stock",
        {"i": Parameter(phrasings("item", "product", test=("article",)), "string", "Name of the product", lambda d: d.choice(THINGS))},
        phrasings("How many {i} are in stock?", "Do we still have {i}?", "Check the stock of {i}.",
                  "Are there {i} in stock?",
                  "How many {i} do we have?",
                  "What is the stock of {i}?",
                  "Tell me the stock of {i}.",
                  "I need to know how many {i} are left.",
                  "Look up how many {i} are in stock.",
                  "Stock of {i}?",
                  "Find out if we have {i}.",
                  "Give me the number of {i} in stock.",

                  test=("Please tell me how many {i} we have in stock.",)),
        lambda d, v: {"count": d.between(0, 900)}, "There are {count} {i} in stock."),
    "recipe": Function(
        phrasings("find_recipe", "get_recipe", "search_recipe", test=("recipe_lookup",)), "Find a recipe",
        {"x": Parameter(phrasings("dish", "food", "name", test=("meal",)), "string", "Name of the dish", lambda d: d.choice(FOODS)),
         "p": amount("portions", "servings", test=("persons",), about="Number of portions", high=12)},
        phrasings("Find a recipe for {p} portions of {x}.", "How do I cook {x} for {p} people?", "I want to cook {x} for {p}.",
                  "Give me a recipe for {x}, {p} portions.",
                  "Look for a recipe: {x} for {p}.",
                  "I need a recipe of {x} for {p} people.",
                  "We are {p} and want {x}. Find a recipe.",
                  "How is {x} made for {p} people?",
                  "Get a recipe for {x} for {p}.",
                  "Show me how to make {x} for {p} persons.",
                  "Recipe for {p} portions of {x}?",
                  "Search a recipe of {x} for {p}.",

                  test=("Please look for a recipe of {x} for {p} persons.",)),
        lambda d, v: {"minutes": d.between(10, 120)}, "I found a recipe for {x} for {p}. It takes {minutes} minutes."),
    "add": Function(
        phrasings("add_numbers", "sum_numbers", "plus", test=("number_adder",)), "Add two numbers",
        {"a": amount("a", "first", "x", test=("left",), about="First number", high=9999),
         "b": amount("b", "second", "y", test=("right",), about="Second number", high=9999)},
        phrasings("Use the function to add {a} and {b}.", "Add {a} and {b} with the function.",
                  "Use the function: {a} plus {b}.",
                  "With the function, add {a} to {b}.",
                  "Let the function add {a} and {b}.",
                  "Call the function for {a} + {b}.",
                  "Find {a} + {b} by the function.",
                  "I want the function to add {a} and {b}.",
                  "Use your function to sum {a} and {b}.",
                  "Get the sum of {a} and {b} from the function.",

                  test=("Please use the function to find {a} plus {b}.",)),
        lambda d, v: {"result": v["a"] + v["b"]}, "The result is {result}."),
    "reminder": Function(
        phrasings("add_reminder", "create_reminder", "remind_me", test=("new_reminder",)), "Remind the user of something",
        {"m": Parameter(phrasings("text", "title", "what", test=("subject",)), "string", "What to remind of",
                        lambda d: f"{d.choice(('buy', 'clean', 'find', 'sell', 'repair', 'paint'))} the {d.choice(OBJECTS)}"),
         "d": DAY},
        phrasings("Remind me on {d} to {m}.", "On {d}, remind me to {m}.", "Add a reminder for {d}: {m}",
                  "I must {m} on {d}. Remind me.",
                  "On {d} I have to {m}. Remind me.",
                  "Make a reminder to {m} on {d}.",
                  "Set a reminder for {d} to {m}.",
                  "Do not let me forget to {m} on {d}.",
                  "Tell me on {d} to {m}.",
                  "I want a reminder on {d}: {m}",
                  "Help me remember to {m} on {d}.",
                  "Create a reminder to {m}, for {d}.",

                  test=("Please remind me to {m} on {d}.",)),
        lambda d, v: {"ok": True}, "I will remind you on {d} to {m}."),
}
