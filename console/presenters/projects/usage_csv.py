"""The usage of a month as CSV, one line per job and accelerator type, for pages, REST and the command line."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Protocol

from jobs.projects.usage import JobLine

HEADER = ("month", "project", "user", "job", "accelerator_type", "runs", "gpu_seconds", "cpu_seconds")


class Out(Protocol):
    def write(self, text: str, /) -> object: ...


def write(out: Out, month: date, lines: Iterable[JobLine], projects: Mapping[int, str]) -> None:
    """Write the lines as CSV. A name that begins with =, +, - or @ gets a quote, so that no spreadsheet runs it."""
    table = csv.writer(out, lineterminator="\n")
    table.writerow(HEADER)
    for line in lines:
        figures = (f"{line.gpu_seconds:.3f}", f"{line.cpu_seconds:.3f}")
        row = (projects[line.project], _plain(line.owner_name), line.job, line.accelerator_type, line.runs)
        table.writerow((f"{month:%Y-%m}", *row, *figures))


def _plain(text: str) -> str:
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
