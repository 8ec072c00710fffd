"""Includes go downward only: what a file includes lies in its own room or in a room that DEPS names, directly or through others."""

import posixpath
import re

from . import cmake_files
from .repository import CPP, Repository

# A room may depend on rooms of lower rank, and a room inside another (ops/cpu) on the outer one. Rank 8 is the program itself.
RANKS = {
    "base": 0,
    "tensor": 1, "text": 1, "http": 1, "evaluate": 1,
    "ops": 2, "comm": 2, "api": 2, "load": 2,
    "model": 3, "cache": 3, "speculate": 3,
    "plan": 4, "meter": 4, "sched": 4, "pd": 4, "transfer": 4,
    "engine": 5,
    "fleet": 6, "router": 6,
    "server": 7, "sim": 7,
    "app": 8,
}  # fmt: skip

# Dependencies that rank would allow and the design forbids.
FORBIDDEN = {("router", "engine"), ("router", "tensor"), ("cache", "tensor"), ("cache", "ops"), ("http", "tensor"), ("text", "tensor")}

# Foreign headers that stay inside some rooms: what they begin with, where they may be included, what to use elsewhere.
FENCED = [
    ("boost/asio", ("http",), "use the http room"),
    ("boost/beast", ("http",), "use the http room"),
    ("spdlog/", ("base",), "use base/log.h"),
    ("cuda", ("tensor/cuda", "ops/cuda", "comm", "engine"), "use the tensor room"),
    ("nccl", ("comm",), "use the comm room"),
]

# Plain state machines: no thread, lock or clock of their own.
PURE_ROOMS = ("cache", "plan", "sched", "speculate", "pd")
IMPURE = ("thread", "mutex", "condition_variable", "shared_mutex", "atomic", "chrono", "future")

BANNED_NAMES = ("common", "utils", "util", "misc", "helpers")
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')


def room_of(path: str, rooms: dict) -> str | None:
    """The innermost room that holds src/<path>; src/app counts as one."""
    folder = posixpath.dirname(path)
    while folder:
        if folder in rooms or folder == "app":
            return folder
        folder = posixpath.dirname(folder)
    return None


def reachable(name: str, rooms: dict) -> set[str]:
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        room = rooms.get(waiting.pop())
        for dep in room.deps if room else []:
            if dep not in seen:
                seen.add(dep)
                waiting.append(dep)
    return seen


def may_depend(room: str, on: str) -> bool:
    outer, inner = room.split("/")[0], on.split("/")[0]
    if outer == inner:
        return room.startswith(on + "/")
    return RANKS[inner] < RANKS[outer] and (outer, inner) not in FORBIDDEN


def check_rooms(repository: Repository, rooms: dict) -> None:
    for room in rooms.values():
        where = (room.path, room.line)
        if posixpath.dirname(room.path) != f"src/{room.name}":
            repository.find("layer", *where, f"room {room.name} is declared outside its folder; move it to src/{room.name}/CMakeLists.txt")
        if room.name.split("/")[0] not in RANKS:
            repository.find("layer", *where, f"room {room.name} has no rank; give it one in scripts/checks/layers.py and ARCHITECTURE.md")
            continue
        for dep in room.deps:
            if dep not in rooms:
                message = f"room {room.name} depends on {dep}, which no CMakeLists.txt declares; declare or remove it"
                repository.find("layer", *where, message)
            elif dep.split("/")[0] in RANKS and not may_depend(room.name, dep):
                repository.find("layer", *where, f"room {room.name} may not depend on {dep}; dependencies go to lower ranks only")


def check_includes(repository: Repository, rooms: dict) -> None:
    tracked = set(repository.files)
    closure = {name: reachable(name, rooms) for name in rooms}
    for path in repository.with_suffix(*CPP):
        inside = path.removeprefix("src/") if path.startswith("src/") else None
        room = room_of(inside, rooms) if inside else None
        if inside and room is None:
            repository.find("layer", path, 1, "lies in no room; declare its folder with room(...) or move it")
            continue
        for number, line in enumerate(repository.lines(path), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            quoted, angled = match.groups()
            if inside and angled:
                check_foreign(repository, path, number, inside, angled)
            if quoted is None:
                continue
            if inside is None:
                if not {f"src/{quoted}", f"tests/{quoted}", quoted} & tracked:
                    repository.find("layer", path, number, f'"{quoted}" is not a tracked file; write its path from src/ or tests/')
                continue
            if f"src/{quoted}" not in tracked:
                message = f'"{quoted}" is not a tracked file of src/; write the path from src/, and <> for libraries'
                repository.find("layer", path, number, message)
                continue
            target = room_of(quoted, rooms)
            if target is None or target == room:
                continue
            if target == "app":
                repository.find("layer", path, number, "nothing may include the program; move what is needed into a room")
            elif room != "app" and target not in closure[room]:
                message = f"room {room} does not depend on {target}; add it to DEPS if the ranks allow, or move the code"
                repository.find("layer", path, number, message)


def check_foreign(repository: Repository, path: str, number: int, inside: str, header: str) -> None:
    for prefix, homes, instead in FENCED:
        if header.startswith(prefix) and not any(inside.startswith(home + "/") for home in homes):
            repository.find("layer", path, number, f"<{header}> stays inside {', '.join(homes)}; {instead}")
    if inside.split("/")[0] in PURE_ROOMS and header in IMPURE and not path.endswith("_test.cc"):
        repository.find("layer", path, number, f"<{header}> in a room of plain state machines; pass time and results in as events")


def check_names(repository: Repository) -> None:
    for path in repository.files:
        parts = posixpath.splitext(path)[0].split("/")
        for part in parts:
            if part.lower() in BANNED_NAMES:
                repository.find("name", path, 1, f"'{part}' says nothing; name the folder or file after what it holds")


def check(repository: Repository) -> None:
    rooms = cmake_files.rooms(repository)
    check_rooms(repository, rooms)
    check_includes(repository, rooms)
    check_names(repository)
