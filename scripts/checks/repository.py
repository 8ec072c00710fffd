"""The tracked files, the exceptions, and the list of findings."""

import dataclasses
import pathlib
import subprocess

EXCEPTIONS = "scripts/lint-allow.txt"
CPP = (".cc", ".h", ".cu", ".cuh")


@dataclasses.dataclass(frozen=True, order=True)
class Finding:
    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


class Repository:
    def __init__(self, root: pathlib.Path):
        self.root = root
        self.findings: list[Finding] = []
        self.warnings: list[Finding] = []
        self._texts: dict[str, str | None] = {}
        self.executable: dict[str, bool] = {}
        listing = subprocess.run(["git", "ls-files", "-s", "-z"], cwd=root, check=True, capture_output=True, text=True).stdout
        for entry in filter(None, listing.split("\0")):
            about, path = entry.split("\t", 1)
            if (root / path).is_file():
                self.executable[path] = about.startswith("100755")
        self.files = sorted(self.executable)
        self._exceptions = self._read_exceptions()
        self._used: set[tuple[str, str]] = set()

    def text(self, path: str) -> str | None:
        """The content; None if it is not UTF-8 text."""
        if path not in self._texts:
            data = (self.root / path).read_bytes()
            try:
                self._texts[path] = None if b"\0" in data else data.decode()
            except UnicodeDecodeError:
                self._texts[path] = None
        return self._texts[path]

    def lines(self, path: str) -> list[str]:
        return (self.text(path) or "").split("\n")

    def with_suffix(self, *suffixes: str) -> list[str]:
        return [path for path in self.files if path.endswith(suffixes)]

    def find(self, rule: str, path: str, line: int, message: str) -> None:
        if (rule, path) in self._exceptions:
            self._used.add((rule, path))
        else:
            self.findings.append(Finding(path, line, message))

    def warn(self, rule: str, path: str, line: int, message: str) -> None:
        if (rule, path) in self._exceptions:
            self._used.add((rule, path))
        else:
            self.warnings.append(Finding(path, line, message))

    def report_stale_exceptions(self, formatting_ran: bool) -> None:
        for (rule, path), line in self._exceptions.items():
            if rule == "format" and not formatting_ran:
                continue
            if (rule, path) not in self._used:
                self.findings.append(Finding(EXCEPTIONS, line, f"nothing in {path} needs the exception '{rule}'; remove this line"))

    def _read_exceptions(self) -> dict[tuple[str, str], int]:
        found: dict[tuple[str, str], int] = {}
        if EXCEPTIONS not in self.files:
            return found
        for number, line in enumerate(self.lines(EXCEPTIONS), 1):
            if not line.strip() or line.startswith("#"):
                continue
            head, colon, reason = line.partition(": ")
            words = head.split()
            if len(words) != 2 or not colon or not reason.strip():
                self.findings.append(Finding(EXCEPTIONS, number, "not 'rule path: reason'; write it so"))
                continue
            found[(words[0], words[1])] = number
        return found
