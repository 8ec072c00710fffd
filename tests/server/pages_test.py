#!/usr/bin/env python3
"""The pages of settings and metrics are those that the program's tables make; `make docs` writes them."""
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BATON = os.environ.get("BATON_PROGRAM", str(ROOT / "build/release/bin/baton"))


def main():
    stale = []
    for what, page in (("page", "docs/settings.md"), ("metrics", "docs/metrics.md")):
        made = subprocess.run([BATON, "config", what], stdout=subprocess.PIPE, check=True).stdout.decode()
        if made != (ROOT / page).read_text(encoding="utf-8"):
            stale.append(page)
    if stale:
        print(f"stale: {', '.join(stale)}; run make docs")
    return len(stale)


if __name__ == "__main__":
    sys.exit(main())
