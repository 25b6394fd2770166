"""When the bytes of a log were printed, by the host's clock: the marks that came with them."""

from __future__ import annotations

from collections.abc import Iterable

from jobs.logs.pieces import Mark
from jobs.models import LogPiece, LogSegment, Run

# The most marks of one answer. With more, only each second one is told, or each third, and so on.
MAX_MARKS = 4_000


def times_between(run: Run, start: int, end: int) -> list[Mark]:
    """The marks in [start, end), and the last one before, in the order of the log."""
    found: list[Mark] = []
    for rows in (LogSegment.objects.filter(run=run), LogPiece.objects.filter(run=run)):
        before = rows.filter(start__lte=start, wall__isnull=False).order_by("-start")[:1]
        behind = rows.filter(start__gt=start, start__lt=end, wall__isnull=False).order_by("start")
        for row in [*before, *behind]:
            found += _marks(row)
    found.sort()
    first = max((place for place, mark in enumerate(found) if mark[0] <= start), default=0)
    chosen = [mark for mark in found[first:] if mark[0] < end]
    return chosen[:: -(-len(chosen) // MAX_MARKS)] if chosen else []


def _marks(row: LogSegment | LogPiece) -> Iterable[Mark]:
    marks = row.at if isinstance(row, LogPiece) else [mark for entry in row.index for mark in entry[5]]
    return [(int(offset), float(wall)) for offset, wall in marks]
