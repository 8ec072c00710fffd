"""The build graph is text under review: every source is listed, nothing is found or fetched by itself, every room has its page."""

import posixpath
import re

from . import cmake_files
from .repository import Repository

FORBIDDEN_COMMANDS = [
    (re.compile(r"\bfile\s*\(\s*GLOB", re.IGNORECASE), "finds files by pattern; list them"),
    (re.compile(r"\b(FetchContent|ExternalProject)", re.IGNORECASE), "fetches from the network; install a package in scripts/setup"),
    (re.compile(r"\bfile\s*\(\s*DOWNLOAD", re.IGNORECASE), "fetches from the network; install a package in scripts/setup"),
]


def check_commands(repository: Repository) -> None:
    for path in cmake_files.cmake_files(repository):
        for number, line in enumerate(repository.lines(path), 1):
            for pattern, message in FORBIDDEN_COMMANDS:
                if pattern.search(line.split("#")[0]):
                    repository.find("build", path, number, message)


def check_listed(repository: Repository) -> None:
    listed = cmake_files.listed_files(repository)
    for path in repository.with_suffix(".cc", ".cu"):
        if not path.startswith(("src/", "tests/")) or path in listed:
            continue
        if path.endswith("_test.cc"):
            message = "test that no CMakeLists.txt lists, so it never runs; add it to TESTS"
        else:
            message = "source that no CMakeLists.txt lists; list it or remove it"
        repository.find("build", path, 1, message)
    for path, where in sorted(listed.items()):
        if path.endswith((".cc", ".cu")) and path not in repository.executable:
            repository.find("build", where, 1, f"lists {path}, which is not tracked; add it to git or take it off the list")
    for path in repository.with_suffix("_test.py"):
        if path not in listed:
            repository.find("build", path, 1, "test that no CMakeLists.txt lists, so it never runs; add it with add_test")


def check_pages(repository: Repository) -> None:
    folders = {f"src/{name}" for name in cmake_files.rooms(repository)}
    folders |= {"/".join(path.split("/")[:2]) for path in repository.files if path.startswith("src/") and path.count("/") >= 2}
    for folder in sorted(folders):
        if f"{folder}/README.md" not in repository.files:
            repository.find("page", folder, 1, "room without README.md; write its purpose, contract, threads, invariants, how to extend")


def check_modes(repository: Repository) -> None:
    for path, executable in repository.executable.items():
        script = (repository.text(path) or "").startswith("#!")
        name = posixpath.basename(path)
        if script and not executable:
            repository.find("mode", path, 1, f"has a #! line and is not executable; run chmod +x {name}")
        elif executable and not script:
            repository.find("mode", path, 1, f"is executable without a #! line; run chmod -x {name}")


def check(repository: Repository) -> None:
    check_commands(repository)
    check_listed(repository)
    check_pages(repository)
    check_modes(repository)
