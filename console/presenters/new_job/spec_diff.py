"""The difference between the documents of two jobs, line by line."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jobs.models import Job
from jobs.preparations.brought import found_document
from jobs.rules.spec.image_aliases import images_used_document

# So many equal lines are shown around each difference.
AROUND = 3
SAME, ADDED, REMOVED, SKIPPED = "same", "added", "removed", "skipped"
_KINDS = {" ": SAME, "+": ADDED, "-": REMOVED, "@": SKIPPED}


@dataclass(frozen=True, slots=True)
class DiffLine:
    kind: str
    text: str


def diff(before: Job, after: Job) -> list[DiffLine]:
    """What was removed from and added to the first document to make the second. Empty if they are equal."""
    lines = difflib.unified_diff(_lines(before), _lines(after), lineterm="", n=AROUND)
    return [DiffLine(_KINDS[line[0]], line[1:]) for line in _without_names(lines)]


def _without_names(lines: Iterator[str]) -> Iterator[str]:
    """The lines of a unified diff after the two with the names of the files."""
    for number, line in enumerate(lines):
        if number >= 2:
            yield "@" if line.startswith("@") else line


def _lines(job: Job) -> list[str]:
    document = {
        "displayName": job.display_name,
        "labels": job.labels,
        "project": job.project.name,
        "location": job.location_name,
        "jobSpec": job.spec,
        **images_used_document(job.resolved),
        **found_document(job),
    }
    return json.dumps(_by_line(document), indent=2, ensure_ascii=False, sort_keys=True).split("\n")


def _by_line(value: Any) -> Any:
    """A text of several lines becomes a list of them, so that a change of one line shows as that."""
    if isinstance(value, dict):
        return {name: _by_line(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_by_line(each) for each in value]
    return value.split("\n") if isinstance(value, str) and "\n" in value else value
