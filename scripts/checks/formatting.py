"""clang-format, only asked: `make format` applies it."""

import re
import shutil
import subprocess

from .repository import CPP, Repository

VERSION = 14
MESSAGE = re.compile(r"^(.*?):(\d+):\d+: (?:error|warning): code should be clang-formatted")


def check(repository: Repository) -> None:
    paths = repository.with_suffix(*CPP)
    if not paths or ".clang-format" not in repository.files:
        return
    program = shutil.which(f"clang-format-{VERSION}") or shutil.which("clang-format")
    version = subprocess.run([program, "--version"], capture_output=True, text=True).stdout if program else ""
    if f"version {VERSION}." not in version:
        repository.find("format", ".clang-format", 1, f"unchecked, since clang-format {VERSION} was not found; run scripts/setup test")
        return
    output = subprocess.run([program, "--dry-run", *paths], cwd=repository.root, capture_output=True, text=True).stderr
    seen = set()
    for line in output.splitlines():
        match = MESSAGE.match(line)
        if match and match.group(1) not in seen:
            seen.add(match.group(1))
            repository.find("format", match.group(1), int(match.group(2)), "differs from .clang-format; run make format")
