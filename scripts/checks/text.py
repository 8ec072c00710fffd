"""Sizes, white space, line length, opening comments, and words that age."""

import posixpath
import re

from .repository import CPP, Repository

WARN_LINES = 400
MOST_LINES = 600
MOST_COLUMNS = 140
KNOWN_GAPS = "docs/known-gaps.md"
VERBATIM = ("LICENSE",)  # texts of others, kept as they are
DATA = ("tests/data/", "tests/fuzz/corpus/")
PAGE = (".js", ".css", ".html")
WITH_COLOURS = (".svg", ".css", ".html")

# Text must make sense to someone who has the repository and nothing else.
PRIVATE_WORDS = [
    (re.compile(r"\bsessions?\b", re.IGNORECASE), "who worked on it, and when, is git's matter"),
    (re.compile(r"\bsub-?agents?\b", re.IGNORECASE), "who worked on it, and when, is git's matter"),
    (re.compile(r"(?<![\w.])/(?:work|home)/"), "a path of one machine; write it relative to the repository"),
    (re.compile(r"\.\./shared\b"), "lies outside the repository; copy what is needed"),
    (re.compile(r"(?<![\w&#\"'=:/])#\d{1,5}\b"), "an issue number; say what it was about"),
    (re.compile(r"\b(issues?|tickets?|PR) #?\d+\b", re.IGNORECASE), "an issue number; say what it was about"),
]
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b(?:\(([\w-]+)\))?")


def check_size(repository: Repository, path: str) -> None:
    count = len((repository.text(path) or "").splitlines())
    if count > MOST_LINES:
        repository.find("size", path, count, f"{count} lines, more than {MOST_LINES}; split it by concept")
    elif count > WARN_LINES:
        repository.warn("size", path, count, f"{count} lines, more than {WARN_LINES}; think of splitting it by concept")


def check_opening(repository: Repository, path: str) -> None:
    """A header, or a source without one, opens by saying what it holds. Tests and instantiations are told by their names."""
    stem = posixpath.splitext(path)[0]
    has_header = path.endswith((".cc", ".cu")) and any(stem + suffix in repository.executable for suffix in (".h", ".cuh"))
    named = path.endswith("_test.cc") or posixpath.basename(posixpath.dirname(path)) == "inst"
    if not has_header and not named and not (repository.text(path) or "").startswith("//"):
        repository.find("opening", path, 1, "does not open with a comment; say in a line what the file holds")


def check_white_space(repository: Repository, path: str) -> None:
    text = repository.text(path) or ""
    if not text:
        repository.find("space", path, 1, "is empty; fill it or remove it")
        return
    if not text.endswith("\n"):
        repository.find("space", path, text.count("\n") + 1, "does not end with a line end; add one")
    tabs_allowed = posixpath.basename(path) == "Makefile"
    for number, line in enumerate(text.split("\n"), 1):
        if line != line.rstrip():
            repository.find("space", path, number, "white space at the end of the line; remove it")
        if "\t" in line and not tabs_allowed:
            repository.find("space", path, number, "a tab; use spaces")


def check_columns(repository: Repository, path: str) -> None:
    for number, line in enumerate(repository.lines(path), 1):
        if len(line) > MOST_COLUMNS:
            repository.find("columns", path, number, f"{len(line)} columns, more than {MOST_COLUMNS}; break the line")


def check_words(repository: Repository, path: str, gaps: str) -> None:
    for number, line in enumerate(repository.lines(path), 1):
        for pattern, why in PRIVATE_WORDS:
            match = pattern.search(line)
            if match and not (match.group(0).startswith("#") and path.endswith(WITH_COLOURS)):
                repository.find("words", path, number, f"'{match.group(0)}': {why}")
        if match := UNFINISHED.search(line):
            word, key = match.groups()
            if key is None or key not in gaps:
                message = f"{word} without a line in {KNOWN_GAPS}; write {word}(key) and the key with its story there"
                repository.find("words", path, number, message)


def check(repository: Repository) -> None:
    gaps = (repository.text(KNOWN_GAPS) or "") if KNOWN_GAPS in repository.files else ""
    for path in repository.files:
        if repository.text(path) is None or path in VERBATIM:
            continue
        python = path.endswith(".py") or (repository.text(path) or "").startswith("#!/usr/bin/env python3")
        if path.endswith((*CPP, *PAGE)) or python:
            check_size(repository, path)
            check_columns(repository, path)
        if path.endswith(CPP):
            check_opening(repository, path)
        if not path.startswith(DATA):
            check_white_space(repository, path)
        check_words(repository, path, gaps)
