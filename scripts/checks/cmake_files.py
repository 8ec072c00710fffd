"""Reads what the rules need from CMakeLists.txt files: rooms with their dependencies, and the files that are listed."""

import dataclasses
import pathlib
import posixpath
import re

from .repository import Repository

ROOM_KEYWORDS = {"NAME", "SOURCES", "DEPS", "LIBRARIES", "TESTS"}


@dataclasses.dataclass
class Room:
    name: str
    path: str  # of the CMake file that declares it
    line: int
    deps: list[str]


def strip_comments(text: str) -> str:
    return re.sub(r"#[^\n]*", "", text)


def expand_loops(text: str) -> str:
    """Unrolls foreach(variable a b c) ... endforeach(), innermost first."""
    pattern = re.compile(r"foreach\((\w+)((?:\s+[^\s()]+)+)\s*\)((?:(?!foreach\().)*?)endforeach\([^)]*\)", re.DOTALL)
    while match := pattern.search(text):
        variable, items, body = match.groups()
        unrolled = "".join(body.replace("${" + variable + "}", item) for item in items.split())
        text = text[: match.start()] + unrolled + text[match.end() :]
    return text


def cmake_files(repository: Repository) -> list[str]:
    return [path for path in repository.files if posixpath.basename(path) == "CMakeLists.txt" or path.endswith(".cmake")]


def rooms(repository: Repository) -> dict[str, Room]:
    found: dict[str, Room] = {}
    for path in cmake_files(repository):
        if not path.startswith("src/"):
            continue
        text = strip_comments(repository.text(path) or "")
        for match in re.finditer(r"\broom\(([^)]*)\)", text):
            values: dict[str, list[str]] = {}
            keyword = ""
            for word in match.group(1).split():
                if word in ROOM_KEYWORDS:
                    keyword = word
                    values[keyword] = []
                elif keyword:
                    values[keyword].append(word)
            name = (values.get("NAME") or ["?"])[0]
            line = text.count("\n", 0, match.start()) + 1
            found[name] = Room(name, path, line, values.get("DEPS", []))
    return found


def listed_files(repository: Repository) -> dict[str, str]:
    """Every file that a CMake file names, relative to itself or by ${CMAKE_SOURCE_DIR}, and the CMake file."""
    listed: dict[str, str] = {}
    for path in cmake_files(repository):
        folder = str(pathlib.PurePosixPath(path).parent)
        text = expand_loops(strip_comments(repository.text(path) or ""))
        for variable in ("CMAKE_CURRENT_SOURCE_DIR", "CMAKE_CURRENT_LIST_DIR"):
            text = text.replace("${" + variable + "}/", "")
        text = text.replace("${CMAKE_SOURCE_DIR}/", "//").replace("${PROJECT_SOURCE_DIR}/", "//")
        for word in re.findall(r"(?<![\w./+}-])[\w./+-]+\.\w+", text):
            absolute = word[2:] if word.startswith("//") else posixpath.normpath(posixpath.join(folder, word))
            listed[absolute] = path
    return listed
