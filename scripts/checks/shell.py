"""Scripts of the shell are read by bash before they are landed: a merge can break a line that no test runs."""

import re
import subprocess

from .repository import Repository


def check(repository: Repository) -> None:
    for path in repository.files:
        if path.endswith(".py") or not (repository.lines(path)[0]).startswith("#!/usr/bin/env bash"):
            continue
        read = subprocess.run(["bash", "-n", path], cwd=repository.root, capture_output=True, text=True)
        if read.returncode:
            first = read.stderr.strip().split("\n")[0]
            number = re.search(r"line (\d+)", first)
            repository.find("shell", path, int(number.group(1)) if number else 1, f"{first.split(': ', 2)[-1]}; bash cannot read this")
