"""Which files of a folder are left out of an upload: what `.gitignore` and `.trainyardignore` say, as git means it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

FILES = (".gitignore", ".trainyardignore")
# What no program needs on a host. `.trainyardignore` can take it back with `!`.
ALWAYS = (".git/", ".hg/", ".svn/", "__pycache__/", "*.pyc", ".venv/", "node_modules/", ".DS_Store")


@dataclass(frozen=True)
class Rule:
    """`folder`: where the file with the rule is, as parts of a path; the rule is for what lies below."""

    pattern: re.Pattern[str]
    folder: str
    is_negated: bool
    only_folders: bool

    def fits(self, path: str, is_folder: bool) -> bool:
        if self.only_folders and not is_folder:
            return False
        if self.folder and not path.startswith(self.folder + "/"):
            return False
        below = path[len(self.folder) + 1 :] if self.folder else path
        return self.pattern.fullmatch(below) is not None


def rules_of(lines: Iterable[str], folder: str = "") -> list[Rule]:
    """The rules of one file, in their order."""
    found = []
    for line in lines:
        rule = _rule(_bytewise(line.rstrip("\n\r")), _bytewise(folder))
        if rule is not None:
            found.append(rule)
    return found


def rules_in(root: Path, folder: str) -> list[Rule]:
    """The rules that the files of one folder have."""
    found = []
    for name in FILES:
        try:
            lines = (root / folder / name).read_text(encoding="utf-8", errors="replace").splitlines()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError):
            continue
        found += rules_of(lines, folder)
    return found


def is_left_out(path: str, is_folder: bool, rules: Iterable[Rule]) -> bool:
    """The last rule that fits decides. A file below a folder that is left out is never asked for."""
    path = _bytewise(path)
    left_out = False
    for rule in rules:
        if rule.is_negated == left_out and rule.fits(path, is_folder):
            left_out = not rule.is_negated
    return left_out


def _bytewise(text: str) -> str:
    """A letter for each byte: `?` of git is a byte."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("latin-1")


def _rule(line: str, folder: str) -> Rule | None:
    # White space at the end does not count, unless it is quoted.
    text = re.sub(r"(?<!\\)[ \t]+$", "", line)
    if not text or text.startswith("#"):
        return None
    is_negated = text.startswith("!")
    text = text[1:] if is_negated else text
    only_folders = text.endswith("/")
    text = text.rstrip("/") if only_folders else text
    is_anchored = "/" in text
    text = text.lstrip("/") if is_anchored else text
    if not text:
        return None
    prefix = "" if is_anchored else "(?:.*/)?"
    try:
        pattern = re.compile(prefix + _expression(text), re.DOTALL)
    except re.error:  # a range such as [z-a], by which git finds nothing
        return None
    return Rule(pattern, folder, is_negated, only_folders)


def _expression(glob: str) -> str:
    """A pattern of git as a regular expression."""
    found, at = "", 0
    while at < len(glob):
        if glob.startswith("**/", at) and (at == 0 or glob[at - 1] == "/"):
            found, at = found + "(?:.*/)?", at + 3
        elif glob[at:] == "**" and at and glob[at - 1] == "/":
            found, at = found + ".+", at + 2
        elif glob[at] == "*":
            while at < len(glob) and glob[at] == "*":
                at += 1
            found += "[^/]*"
        elif glob[at] == "?":
            found, at = found + "[^/]", at + 1
        elif glob[at] == "\\" and at + 1 < len(glob):
            found, at = found + re.escape(glob[at + 1]), at + 2
        elif glob[at] == "[" and (end := _class_end(glob, at)):
            inner = glob[at + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            inner = "^" + inner[1:] if inner.startswith(("!", "^")) else inner
            found, at = f"{found}(?!/)[{inner}]", end + 1
        else:
            found, at = found + re.escape(glob[at]), at + 1
    return found


def _class_end(glob: str, at: int) -> int:
    """Where the bracket that begins here ends; 0 if it does not."""
    first = at + 1 + (glob[at + 1 : at + 2] in ("!", "^"))
    return max(glob.find("]", first + 1), 0)
