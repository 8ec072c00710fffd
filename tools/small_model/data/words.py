"""Word lists that the tasks draw from."""
import re
from pathlib import Path

NAMES = """Ada Alma Amir Anna Aron Bela Ben Bruno Cara Carl Clara Dan Dora Edgar Ella Emil Emma Erik Eva Felix Finn Flora Frida Greta
Hanna Hugo Ida Igor Ines Iris Ivan Jan Jonas Jana Karl Kira Lara Lea Leo Lina Lisa Luca Lucy Maja Marco Maria Mark Mia Mila Mina Nadia
Nina Noah Nora Olga Oscar Otto Paul Petra Rita Rosa Ruth Sam Sara Simon Sofia Stella Tara Theo Tim Tina Tom Uma Vera Victor Wanda Yara
Yusuf Zoe""".split()

SURNAMES = """Adler Baker Berg Brook Carter Cole Cooper Dale Ellis Field Fisher Ford Grant Hale Hart Hill Holt Hunt Keller Lane Long Marsh
Mason Miller Moor Nash North Page Park Porter Reed Rivers Rowe Sharp Shore Stone Swift Vale Wells West Wood Young""".split()

# Things that one can have many of.
THINGS = """apples pears plums lemons cherries nuts eggs cookies muffins tickets stamps coins cards books pencils pens shells stones marbles
buttons beads candles cups plates boxes baskets bottles jars bricks tiles nails screws ribbons flowers tulips roses seeds leaves feathers
stickers badges posters letters maps photos toys kites balloons blocks chairs lamps towels blankets hats socks gloves""".split()

ANIMALS = """fox bear owl mouse rabbit wolf deer badger otter hedgehog squirrel cat dog horse goat sheep duck goose swan crow robin sparrow
frog turtle beaver mole lion tiger fish whale seal crab bee ant spider snail pony donkey rooster hen""".split()

OBJECTS = """lantern key map boat bell ladder mirror drum kite basket blanket compass clock bridge wheel flute ring box book letter hat coat
rope hammer candle stone feather shell coin crown bottle lamp bucket broom window door tower chair table pillow""".split()

ADJECTIVES = """amber blue brave bright brown calm clever cold crimson curious dark eager early fair gentle golden grand green grey happy
hidden honest kind late little lonely lucky merry misty narrow noble old pale patient proud quick quiet red rough round shy silent silver
slow small smooth soft steady strong tall tiny warm white wide wild wise young""".split()

PLACES = """harbour forest market village river meadow castle garden library station mountain valley bridge island lake mill tower school
bakery farm beach square park museum workshop kitchen cellar attic orchard lighthouse""".split()

CITIES = """Arden Belmont Brookfield Calder Delmar Easton Fairview Glenwood Harlow Kingsford Lakeside Linden Marlow Milton Newport Norwood
Oakham Redhill Riverton Salem Stanton Sutton Thornton Upton Weston Winslow""".split()

COLOURS = "red blue green yellow black white brown grey orange purple pink golden silver".split()
JOBS = """baker teacher nurse doctor farmer driver pilot painter writer singer gardener carpenter plumber tailor sailor cook clerk judge
librarian engineer""".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
PRODUCTS = """desk lamp chair shelf mirror carpet kettle toaster radio camera phone tablet watch jacket scarf backpack bicycle helmet tent
stove fridge printer keyboard speaker vase""".split()
FOODS = "soup bread cheese rice pasta salad pizza cake pie stew porridge omelette".split()

# Single words for lists and spelling.
WORDS = sorted(set(ANIMALS + OBJECTS + PLACES + COLOURS + JOBS + PRODUCTS + FOODS +
                   [t[:-1] for t in THINGS if t.endswith("s") and t not in ("boxes", "cherries", "leaves")]))

# Every plain word of the texts: what names of functions, parameters and keys may be made of.
VOCABULARY = sorted(set(WORDS) | {w for name in ("facts.txt", "small_talk.txt", "frames.txt")
                                  for w in re.findall(r"\b[a-z]{2,}\b", (Path(__file__).parent / name).read_text())})
