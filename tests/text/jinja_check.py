#!/usr/bin/env python3
"""Renders random templates with Baton's engine and with jinja2, set up as the transformers library does, and compares.

    jinja_check.py --render-records PROGRAM [--templates N] [--seed S]

Exit 77 (skipped) where jinja2 is not installed; `scripts/setup --python` installs it. Errors must be errors on both
sides; their words may differ.
"""

import argparse
import json
import random
import re
import subprocess
import sys
import warnings
from datetime import datetime

SKIPPED = 77

STRINGS = [
    "", "a", "abc", "Hello World", "it's", 'say "x"', "a,b,,c", "  pad \t\n", "ß straße", "ΑΣ ΟΔΟΣ", "İ", "ǆ", "日本語👍", "x\ny\r\nz\n",
    "3", "-7", "3.7", "1e5", "0x1f", "<b>&</b>", "é", "A1_b2", "they're BILL's", "one two  three", "%s-%d", "{}:{}", "\u2028|\xa0|\x1c",
    "aaaa", "٣", "²", "\\",
]  # fmt: skip
NUMBERS = [
    "0", "1", "2", "3", "7", "-1", "10", "1.5", "2.5", "-0.5", "1e16", "1e-7", "0.1", "100", "12345678901234567890", "3.0", "1_000",
    "0x10",
]  # fmt: skip
NAMES = ["s", "t", "n", "f", "l", "m", "d", "u", "e", "nope", "b"]
VARIABLES = {
    "s": "Some text, <|user|> it's",
    "t": "  ünïcode 日本\n",
    "n": 7,
    "f": 2.5,
    "l": [3, 1, 2, 1],
    "m": [{"r": "user", "k": 1, "c": "Hi"}, {"r": "tool", "c": None}, {"r": "User", "k": 0, "c": ["x"]}],
    "d": {"b": 1, "a": [1, 2.5, None, True], "é": {"n": 'ü"\\'}, "items": 5},
    "u": None,
    "e": [],
    "b": True,
}
FILTERS = [
    "abs", "capitalize", "center(9)", "default('x')", "default('x', true)", "d(1)", "dictsort", "dictsort(reverse=true)",
    "dictsort(by='value')", "e", "filesizeformat", "first", "float", "float(1.5)", "format(1, 'x')", "indent", "indent(2, true)",
    "indent('>', blank=true)", "int", "int(9)", "int(base=16)", "items | list", "join", "join(', ')", "join('-', attribute='r')",
    "last", "length", "list", "lower", "map('upper') | list", "map(attribute='r') | list", "map(attribute='k', default=9) | list",
    "max", "min", "min(attribute='k')", "reject | list", "reject('odd') | list", "replace('a', 'XY')", "replace('', '-', 2)",
    "reverse | list", "round", "round(1)", "round(-1)", "round(1, 'floor')", "safe", "select | list", "select('string') | list",
    "selectattr('k') | list", "selectattr('r', 'equalto', 'user') | list", "selectattr('k', 'defined') | list",
    "rejectattr('k', 'defined') | list", "slice(2) | list", "sort", "sort(reverse=true)", "sort(attribute='r')",
    "sort(case_sensitive=true)", "string", "sum", "sum(start=1)", "title", "tojson", "tojson(indent=2)", "tojson(true)",
    "tojson(sort_keys=true)", "tojson(separators=(',', ':'))", "trim", "trim('a ')", "truncate(5)", "truncate(8, true, '…', 0)",
    "unique | list", "upper", "urlencode", "wordcount", "batch(2) | list", "batch(3, 0) | list", "groupby('r') | list", "attr('r')",
    "count", "forceescape",
]  # fmt: skip
TESTS = [
    "defined", "undefined", "none", "boolean", "true", "false", "integer", "float", "number", "string", "mapping", "sequence",
    "iterable", "odd", "even", "divisibleby 3", "eq 1", "ne 'a'", "lt 3", "ge(2)", "in [1, 'a']", "lower", "upper", "sameas none",
    "filter", "test", "callable", "escaped",
]  # fmt: skip
METHODS = [
    "upper()", "lower()", "title()", "capitalize()", "strip()", "lstrip()", "rstrip('c')", "strip('ab')", "split()", "split(',')",
    "split(',', 1)", "split(None, 1)", "rsplit(None, 1)", "rsplit(',', 1)", "splitlines()", "splitlines(true)", "partition(',')",
    "rpartition('a')", "replace('a', 'b')", "replace('', '.')", "find('a')", "rfind('a')", "count('a')", "count('')", "index('a')",
    "find('c', 1)", "find('', 9)", "startswith('a')", "startswith(('x', 'a'))", "endswith('c', 1)", "isalnum()", "isalpha()",
    "isdigit()", "isdecimal()", "isnumeric()", "isspace()", "islower()", "isupper()", "istitle()", "isascii()", "isprintable()",
    "center(7)", "center(8, '*')", "ljust(6, '.')", "rjust(6)", "zfill(6)", "swapcase()", "casefold()", "expandtabs(4)",
    "removeprefix('a')", "removesuffix('c')", "join(['x', 'y'])", "join('ab')", "format(1, 'x')", "format('q', n=2)", "items() | list",
    "keys() | list", "values() | list", "get('a')", "get('zz', 1)", "count(1)", "index(2)", "copy()", "append(1)", "pop()",
    "update({})", "bit_length()", "is_integer()",
]  # fmt: skip
SPECS = [
    "%5d|%-5d|%05d", "%+.2f", "%x %X %o", "%e", "%g", "%r", "%s", "%10.3s|", "%%", "%c", "%5.1f%%", "%i", "%#x", "% d", "%(a)s", "%a",
]  # fmt: skip
FORMATS = [
    "{}", "{0}{0}", "{:>8}|", "{:^9}|", "{:*<6}", "{:05}", "{:+}", "{:,}", "{:.2f}", "{:e}", "{:x}", "{:#b}", "{!r}", "{!r:>9}",
    "{0[0]}", "{:{}}", "{{}}", "{:_}", "{:g}", "{:.3}", "{:%}", "{:d}", "{:c}", "{:08,}", "{!s}", "{!a}",
]  # fmt: skip
LOOPS = [
    "loop.index", "loop.last", "loop.length", "loop.revindex0", "loop.previtem", "loop.nextitem", "loop.cycle('a', 'b')", "loop.changed(n)",
    "loop.first", "i", "w",
]  # fmt: skip
CALLS = ["q(1)", "q(1, 2)", "q(y=3, x=s)", "q()", "q(1, 2, 3, 4)", "q(1, k=2)", "q(*l)", "q(**{'x': 1})"]


class Generator:
    def __init__(self, chance: random.Random):
        self.chance = chance

    def pick(self, options):
        return self.chance.choice(options)

    def string(self) -> str:
        text = self.pick(STRINGS)
        if self.chance.random() < 0.3:
            return repr(text)
        return json.dumps(text, ensure_ascii=max(text, default="") < "\ud800" and self.chance.random() < 0.3)

    def atom(self, depth: int) -> str:
        kind = self.chance.random()
        if kind < 0.3:
            return self.string()
        if kind < 0.5:
            return self.pick(NUMBERS)
        if kind < 0.8 or depth <= 0:
            return self.pick(NAMES)
        if kind < 0.84:
            return self.pick(["true", "false", "none"])
        if kind < 0.9:
            return "[" + ", ".join(self.expression(depth - 1) for _ in range(self.chance.randrange(4))) + "]"
        if kind < 0.94:
            return "(" + "".join(self.expression(depth - 1) + ", " for _ in range(self.chance.randrange(3))) + ")"
        return "{" + ", ".join(f"{self.string()}: {self.expression(depth - 1)}" for _ in range(self.chance.randrange(3))) + "}"

    def number_or_name(self) -> str:
        return self.pick(["1", "-1", "0", "2", "", "n", "-3", "5"])

    def expression(self, depth: int) -> str:
        if depth <= 0:
            return self.atom(0)
        e = self.expression
        kind = self.chance.randrange(17)
        if kind < 3:
            return self.atom(depth)
        if kind == 3:
            return f"({e(depth - 1)} {self.pick(['+', '-', '*', '/', '//', '%', '~', '~'])} {e(depth - 1)})"
        if kind == 4:
            return f"({e(depth - 1)} {self.pick(['==', '!=', '<', '<=', '>', '>=', 'in', 'not in'])} {e(depth - 1)})"
        if kind == 5:
            return f"({e(depth - 1)} {self.pick(['and', 'or'])} {e(depth - 1)})"
        if kind == 6:
            return f"(not {e(depth - 1)})" if self.chance.random() < 0.5 else f"(-{e(depth - 1)})"
        if kind in (7, 8, 9):
            return f"({e(depth - 1)} | {self.pick(FILTERS)})"
        if kind == 10:
            return f"({e(depth - 1)} is {'not ' if self.chance.random() < 0.2 else ''}{self.pick(TESTS)})"
        if kind in (11, 12):
            return f"({e(depth - 1)}).{self.pick(METHODS)}"
        if kind == 13:
            return f"({e(depth - 1)})[{self.number_or_name()}:{self.number_or_name()}{self.pick(['', ':', ':-1', ':2', ':-2'])}]"
        if kind == 14:
            if self.chance.random() < 0.5:
                return f"({e(depth - 1)})[{e(depth - 1)}]"
            return f"({e(depth - 1)}).{self.pick(['a', 'r', 'items', 'k', 'b'])}"
        if kind == 15:
            return f"({e(depth - 1)} if {e(depth - 1)}{' else ' + e(depth - 1) if self.chance.random() < 0.7 else ''})"
        if self.chance.random() < 0.5:
            return f"({json.dumps(self.pick(SPECS))} % {e(depth - 1)})"
        return f"{json.dumps(self.pick(FORMATS))}.format({e(depth - 1)}, {e(depth - 1)})"

    def spaces(self) -> str:
        return self.pick(["", "", " ", "\n", "  ", "\n\n", " \n  ", "text", "x\n"])

    def tag(self, inside: str) -> str:
        return "{%" + self.pick(["", "", "", "-", "+"]) + f" {inside} " + self.pick(["", "", "", "-", "+"]) + "%}"

    def output(self, inside: str) -> str:
        return "{{" + self.pick(["", "", "-"]) + f" {inside} " + self.pick(["", "", "-"]) + "}}"

    def body(self, depth: int, in_loop: bool = False) -> str:
        return "".join(self.spaces() + self.statement(depth, in_loop) for _ in range(self.chance.randrange(1, 4))) + self.spaces()

    def statement(self, depth: int, in_loop: bool) -> str:
        x = lambda: self.expression(2)  # noqa: E731
        if depth <= 0:
            return self.output(x())
        kind = self.chance.randrange(14)
        if kind < 3:
            return self.output(x())
        if kind == 3:
            name = self.pick(["v", "w"])  # no variables of the context: see docs/chat-templates.md
            return self.tag(f"set {name} = {x()}") + self.output(name)
        if kind == 4:
            return self.tag("set v") + self.body(depth - 1) + self.tag("endset") + self.output("v")
        if kind == 5:
            middle = self.tag(f"elif {x()}") + self.body(depth - 1, in_loop) if self.chance.random() < 0.3 else ""
            other = self.tag("else") + self.body(depth - 1, in_loop) if self.chance.random() < 0.5 else ""
            return self.tag(f"if {x()}") + self.body(depth - 1, in_loop) + middle + other + self.tag("endif")
        if kind in (6, 7):
            target = self.pick(["i", "i", "k, w", "s"])
            over = self.pick(["l", "m", "d", "d.items()", "range(3)", "'ab'", "e", "[(1, 2), (3, 4)]", "m | map(attribute='r')"])
            condition = f" if {self.pick(['i', 'loop is defined', 'i != 1', 'n'])}" if self.chance.random() < 0.2 and target == "i" else ""
            inside = self.output(self.pick(LOOPS))
            stop = ""
            if self.chance.random() < 0.3:
                when = self.pick(["loop.index > 1", "i == 1", "loop.last"])
                stop = self.tag(f"if {when}") + self.tag(self.pick(["break", "continue"])) + self.tag("endif")
            other = self.tag("else") + self.body(0) if self.chance.random() < 0.3 else ""
            return self.tag(f"for {target} in {over}{condition}") + inside + stop + self.body(depth - 1, True) + other + self.tag("endfor")
        if kind == 8:
            inside = self.output("x") + self.output(self.pick(["y", "z", "varargs", "kwargs", "v"])) + self.body(depth - 1)
            return self.tag("macro q(x, y=n, z=x)") + inside + self.tag("endmacro") + self.output(self.pick(CALLS))
        if kind == 9:
            macro = self.tag("macro w(x)") + "[" + self.output(self.pick(["caller()", "caller(x)", "x"])) + "]" + self.tag("endmacro")
            return macro + self.tag("call" + self.pick(["", "(v)"]) + " w(n)") + self.body(depth - 1) + self.tag("endcall")
        if kind == 10:
            name = self.pick(["upper", "trim", "replace('a', n | string)", "length", "upper | lower"])
            return self.tag(f"filter {name}") + self.body(depth - 1) + self.tag("endfilter")
        if kind == 11:
            return self.tag(f"with v = {x()}, n = 3") + self.body(depth - 1, in_loop) + self.tag("endwith")
        if kind == 12:
            return self.tag("set ns = namespace(a=1)") + self.tag(f"set ns.a = {x()}") + self.output("ns.a") + self.output("ns.zz")
        if self.chance.random() < 0.5:
            return "{#" + self.pick(["", "-"]) + " c " + self.pick(["", "-"]) + "#}"
        return self.tag("raw") + " {{ x }} {% y %}\n" + self.tag("endraw")


def environment():
    import jinja2
    import jinja2.ext
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: datetime(2026, 3, 14, 15, 9, 26).strftime(form)
    return env


def reference(env, source: str) -> dict:
    try:
        text = env.from_string(source).render(**json.loads(json.dumps(VARIABLES)))
    except Exception as problem:  # whatever the template does
        return {"error": f"{type(problem).__name__}: {problem}"}
    return {"text": text}


# Objects that Python prints with their address or inner name.
UNSTABLE = re.compile(
    r"<(generator|built-in|bound|function|class|Macro|jinja2|dict_|reversed|map|filter|iterator|\w*\s?object)"
    r"|Namespace|LoopContext|Undefined|_iterator|reverseiterator|method-wrapper|&lt;"
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--render-records", required=True)
    parser.add_argument("--templates", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=20)
    arguments = parser.parse_args()
    try:
        env = environment()
    except ImportError:
        print("skipped: jinja2 is not installed; scripts/setup --python installs it")
        return SKIPPED

    warnings.simplefilter("ignore")  # of templates that subscript a number

    make = Generator(random.Random(arguments.seed))
    def one() -> str:
        return make.output(make.expression(3)) if make.chance.random() < 0.5 else make.body(2)

    sources = [one() for _ in range(arguments.templates)]
    records = "".join(json.dumps({"template": s, "variables": VARIABLES}) + "\n" for s in sources)
    lines = subprocess.run([arguments.render_records], input=records, capture_output=True, text=True, check=True).stdout.split("\n")
    rendered = errors = unstable = different = 0
    for source, line in zip(sources, lines, strict=False):
        ours, theirs = json.loads(line), reference(env, source)
        if "text" in theirs and UNSTABLE.search(theirs["text"]):
            unstable += 1
            continue
        same = "error" in ours if "error" in theirs else ours.get("text") == theirs["text"]
        # jinja2 computes constants when it compiles, and lets numbers be sliced there, and only there.
        if "text" in theirs and "cannot be sliced" in ours.get("error", ""):
            unstable += 1
            continue
        rendered += "text" in theirs
        errors += "error" in theirs
        if same:
            continue
        different += 1
        if different <= arguments.show:
            print(f"{source!r}\n  jinja2 {str(theirs)[:300]}\n  here   {str(ours)[:300]}")
    print(f"{rendered} texts and {errors} errors compared, {unstable} left out (they print objects or slice numbers)")
    print(f"{different} different; seed {arguments.seed}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
