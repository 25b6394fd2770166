"""The number of a line in a log, and where a line begins. Lines are counted from 1; only a line feed ends a line.

A segment knows how many line feeds it has. What lies behind the last segment is counted here, and the place up to which
it is counted is remembered in this process: so the end of a log that grows is counted once. Bytes that are missing
have no lines.

Segments of before this count was kept are counted when somebody asks for a line behind them. That may take longer than
one request: the counts are kept, and the next request goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from django.db.models import Sum

from jobs.logs import reader
from jobs.logs.search_budget import SearchBudget
from jobs.models import LogSegment, Run

STEP = 1024 * 1024
MAX_REMEMBERED = 500


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a log, and the offset at which it begins."""

    number: int
    offset: int


@dataclass(frozen=True, slots=True)
class _Counted:
    """Before `offset` there are so many line feeds."""

    offset: int
    feeds: int


# For each run the last place that was counted, the oldest run first.
_last: dict[str, _Counted] = {}


def number_at(run: Run, offset: int, budget: SearchBudget) -> int | None:
    """The number of the line that holds the byte at `offset`. None: the budget was spent before it was counted."""
    if not _count_segments(run, budget):
        return None
    known = _known_before(run, offset)
    for start, data in _chunks(run, known.offset, offset):
        known = _Counted(start + len(data), known.feeds + data.count(b"\n"))
        if known.offset < offset and budget.spent():
            _remember(run, known)
            return None
    _remember(run, known)
    return known.feeds + 1


def find(run: Run, number: int, budget: SearchBudget) -> Line | None:
    """The line of this number; the last line if there are fewer. None: the budget was spent before it was found."""
    if not _count_segments(run, budget):
        return None
    if number <= 1:
        return Line(1, 0)
    known, stored, ended = _segment_with(run, number), reader.size(run), False
    last = _last.get(run.pk)
    if last is not None and known.feeds < last.feeds < number - 1:
        known = last
    for start, data in _chunks(run, known.offset, stored):
        feeds, ended = known.feeds + data.count(b"\n"), data.endswith(b"\n")
        if feeds >= number - 1:
            offset = start + _behind_feed(data, number - 1 - known.feeds)
            if next(_chunks(run, offset, stored), None) is not None:
                return Line(number, offset)
            # Nothing stands behind the last line feed, so the line before it is the last one.
            return find(run, number - 1, budget)
        known = _Counted(start + len(data), feeds)
        if known.offset < stored and budget.spent():
            _remember(run, known)
            return None
    return find(run, known.feeds if ended else known.feeds + 1, budget)


def _count_segments(run: Run, budget: SearchBudget) -> bool:
    """Count the segments that are not counted yet. False if the budget was spent before all were."""
    rows = LogSegment.objects.filter(run=run, lines=None).order_by("start")
    for pk, start, end in rows.values_list("pk", "start", "end"):
        lines = sum(data.count(b"\n") for _, data in _chunks(run, start, end))
        LogSegment.objects.filter(pk=pk).update(lines=lines)
        if budget.spent():
            return not rows.exists()
    return True


def _known_before(run: Run, offset: int) -> _Counted:
    """The last place up to `offset` whose count is known."""
    rows = LogSegment.objects.filter(run=run, end__lte=offset).order_by()
    end = rows.order_by("-start").values_list("end", flat=True).first() or 0
    last = _last.get(run.pk)
    if last is not None and end <= last.offset <= offset:
        return last
    return _Counted(end, rows.aggregate(feeds=Sum("lines"))["feeds"] or 0)


def _segment_with(run: Run, number: int) -> _Counted:
    """The begin of the segment in which this line begins, or the end of the last segment."""
    known = _Counted(0, 0)
    for end, lines in LogSegment.objects.filter(run=run).order_by("start").values_list("end", "lines"):
        feeds = known.feeds + (lines or 0)
        if feeds >= number - 1:
            break
        known = _Counted(end, feeds)
    return known


def _chunks(run: Run, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """What is stored of [start, end), each part with its offset."""
    while start < end:
        chunk = reader.read(run, start, min(STEP, end - start))
        if chunk.end == start:
            return
        if chunk.data and chunk.start < end:
            yield chunk.start, chunk.data[: end - chunk.start]
        start = chunk.end


def _behind_feed(data: bytes, count: int) -> int:
    """The place behind this many line feeds."""
    at = 0
    for _ in range(count):
        at = data.index(b"\n", at) + 1
    return at


def _remember(run: Run, known: _Counted) -> None:
    _last.pop(run.pk, None)
    _last[run.pk] = known
    while len(_last) > MAX_REMEMBERED:
        _last.pop(next(iter(_last)), None)
