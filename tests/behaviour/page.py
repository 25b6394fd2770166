"""Write docs/behaviour.md: each statement of the service's documents, the tests that show it, and what is missing.

`make behaviour` runs it. Statements are rows of rows.txt: an id with its text, and below it, if needed, one of
`follows: WHAT` (a later part of the product; with tests, the part that they do not show), `as ID` (the same as another
row), `cannot be shown here: WHY`, `says nothing: WHY` (there is nothing to show), or tests of other folders.
A test of this folder shows the rows whose ids are in its name.
"""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PAGE = ROOT / "docs" / "behaviour.md"
ROW = re.compile(r"S\d-\d\d")
WITHOUT_A_TEST = ("follows", "cannot be shown here", "says nothing")
RESULTS = ("shown", "shown in part", *WITHOUT_A_TEST, "missing")
PROGRAMS = "tests/behaviour/test_frameworks.py"
IN_NAME = re.compile(r"S\d_\d\d(?=_)")
FAMILIES = {
    "S0": "Jobs, restarts, retries and errors",
    "S1": "The same in an older text",
    "S2": "The same in another older text",
    "S3": "Interactive shells, and jobs that hang",
    "S4": "Distributed training",
}
HEAD = """\
# Statements of the service's documents, and the tests that show them

Trainyard behaves as a managed training service does. Each row is a statement of that service's documents, in the words
of [jobs/README.md](../jobs/README.md); "container" means the replica, whatever it runs in. A row is *shown* by the
tests that are named with it, *follows* with a part of the product that does not exist yet, or is *missing*. What
running replicas see is tested through real hosts. Tests marked with * train with large frameworks: only `make programs`
runs them, not `make test`.

This page is made by `make behaviour`; a test holds it to the tests that exist.

"""


@dataclass
class Row:
    id: str
    statement: str
    note: str = ""
    tests: list[str] = field(default_factory=list)

    @property
    def result(self) -> str:
        kind = self.note.partition(":")[0]
        if self.tests:
            return "shown in part" if kind == "follows" else "shown"
        return kind if kind in WITHOUT_A_TEST else "missing"


def rows() -> dict[str, Row]:
    found: dict[str, Row] = {}
    last = None
    for line in (HERE / "rows.txt").read_text().splitlines():
        if line.startswith("    ") and last:
            last.note = f"{last.note} {line.strip()}".strip()
        else:
            name, _, statement = line.partition(" ")
            last = found[name] = Row(name, statement)
    shown = shown_here()
    for row in found.values():
        row.tests = shown.get(row.id, []) + [word for word in row.note.split() if word.startswith("tests/")]
    for row in found.values():
        if row.note.startswith("as "):
            row.tests = row.tests or found[row.note.removeprefix("as ")].tests
    return found


def shown_here() -> dict[str, list[str]]:
    """Map each row to the tests of this folder that have its id in their name."""
    found: dict[str, list[str]] = {}
    for path in sorted(HERE.glob("test_*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                for each in IN_NAME.findall(node.name):
                    named = f"{path.relative_to(ROOT)}::{node.name}"
                    found.setdefault(each.replace("_", "-"), []).append(named)
    return found


def page() -> str:
    every = list(rows().values())
    results = [row.result for row in every]
    count = ", ".join(f"{results.count(result)} {result}" for result in RESULTS if result in results)
    text = [f"{HEAD}**{len(every)} rows: {count}.**"]
    for family, title in FAMILIES.items():
        text.append(f"\n## {family}: {title}\n\n| row | statement | result |\n| --- | --- | --- |")
        text += [line(row) for row in every if row.id.startswith(family)]
    return "\n".join(text) + "\n"


def line(row: Row) -> str:
    what = row.note.partition(": ")[2]
    told = f"**{row.result}**" if row.result == "missing" else f"{row.result}: {what}"
    if row.tests:
        told = f"{row.result} by " + ", ".join(link(test) for test in row.tests)
    if row.result == "follows":
        told = f"follows with {what}"
    if row.result == "shown in part":
        told += f"; the rest follows with {what}"
    if row.note.startswith("as "):
        told += f" ({row.note})"
    return f"| {row.id} | {row.statement.replace('|', '&#124;')} | {told} |"


def link(test: str) -> str:
    path, _, name = test.partition("::")
    words = IN_NAME.sub("", name.removeprefix("test_")).strip("_").replace("_", " ")
    return f"[{words}](../{path}){'*' if path == PROGRAMS else ''}"


def main() -> int:
    PAGE.write_text(page())
    missing = [row.id for row in rows().values() if row.result == "missing"]
    print(f"{PAGE.relative_to(ROOT)}: missing {' '.join(missing) or 'nothing'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
