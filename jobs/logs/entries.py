"""A log as entries with a time: one for each line. What Google's clients read through the Logging API.

An entry is known by where it ends, and its time is when its last byte was printed, by the host's clock. So entries of
one run come in the order of their times, unless that clock was set back. A line that is not finished has no entry yet,
and any part of a log gives the same entries, wherever one begins to read. A line of more than LONGEST bytes becomes
several entries.

After a host's clock was set back, new entries have times before those of entries that are already here. A reader that
goes on from the last time that it saw leaves them out, up to the old time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import TypeVar

from django.db.models import QuerySet

from agents.infra.sql import Parameter, SelectStatement
from jobs.logs import reader
from jobs.models import LogGap, LogPiece, LogSegment, Run

Part = TypeVar("Part", LogPiece, LogSegment)
LONGEST = 64 * 1024
# What is read at a time. A window is read from LONGEST * 2 before it, where a line that ends in it may begin.
WINDOW = 256 * 1024
EARLIER_S = 0.001
# What all logs that are read together may hold in memory, and what each of them may hold at least.
LEAST_WINDOW = 32 * 1024
MOST_ENTRIES, LEAST_ENTRIES = 200_000, 100

# The gap that has all of [low, high). It is one step, because a program can make one of terabytes.
_gap_over = SelectStatement(
    lambda: (
        LogGap.objects.filter(run=Parameter("run"), start__lte=Parameter("low"), end__gte=Parameter("high"))
        .order_by("start")
        .values_list("start", "end")[:1]
    )
)
_marks_of_piece = SelectStatement(lambda: _last_marked(LogPiece.objects.all()).values_list("at")[:1])
_index_of_segment = SelectStatement(lambda: _last_marked(LogSegment.objects.all()).values_list("index")[:1])
_later_piece = SelectStatement(lambda: _first_later(LogPiece.objects.all()).values_list("start")[:1])
_later_segment = SelectStatement(lambda: _first_later(LogSegment.objects.all()).values_list("start")[:1])


def _last_marked(rows: QuerySet[Part]) -> QuerySet[Part]:
    known = rows.filter(run=Parameter("run"), start__lte=Parameter("offset"), wall__isnull=False)
    return known.order_by("-start")


def _first_later(rows: QuerySet[Part]) -> QuerySet[Part]:
    return rows.filter(run=Parameter("run"), wall__gt=Parameter("when")).order_by("start")


@dataclass(frozen=True, slots=True)
class Entry:
    """The bytes of a line up to `end`, without its line feed; or, in `missing`, why bytes up to there are missing."""

    end: int
    at: float
    data: bytes
    missing: str = ""


def after(run: Run, since: float, together: int = 1, start: int | None = None) -> Iterator[Entry]:
    """The entries from this moment on, the oldest first. There may be earlier ones among them.

    `together`: how many logs are read at the same time. They share the memory. `start`: the end of the last entry that
    is known already, and then the moment does not count.
    """
    size, most = _share(together)
    # Several marks may have the same time, and `offset_at` finds the last of them.
    low = reader.offset_at(run, since - EARLIER_S) if start is None else start
    top = reader.size(run)
    while low < top:
        high = min(low + size, top)
        for _start, end in _gap_over(run=run.pk, low=low, high=high):
            high = min(end, top)
        oldest = list(islice(window(run, low, high), most + 1))
        if len(oldest) > most:
            oldest.pop()
            high = oldest[-1].end
        yield from oldest
        low = high


def before(run: Run, until: float, together: int = 1, end: int | None = None) -> Iterator[Entry]:
    """The entries up to this moment, the newest first. There may be later ones among them.

    `end`: where the first of them ends, and then the moment does not count.
    """
    size, most = _share(together)
    top = reader.size(run)
    high = _offset_after(run, until, top) if end is None else min(end, top)
    while high > 0:
        low = max(high - size, 0)
        for start, _end in _gap_over(run=run.pk, low=low, high=high):
            low = start
        newest = deque(window(run, low, high), most + 1)
        if len(newest) > most:
            low = newest.popleft().end
        while newest:
            yield newest.pop()
        high = low


def _share(together: int) -> tuple[int, int]:
    """How many bytes and how many entries each of so many logs may hold at once."""
    return (
        min(WINDOW, max(WINDOW // together, LEAST_WINDOW)),
        max(MOST_ENTRIES // together, LEAST_ENTRIES),
    )


def window(run: Run, low: int, high: int) -> Iterator[Entry]:
    """The entries that end in (low, high]."""
    start = max(low - 2 * LONGEST, 0)
    line, begin, whole, cut = bytearray(), start, start == 0, -1
    marks = [(start, time_at(run, start))]
    while start < high:
        # What is read begins behind a gap, however large that is.
        chunk = reader.read(run, start, min(high - start, WINDOW + 2 * LONGEST))
        marks += [(int(place), float(wall)) for place, wall in chunk.at]
        if chunk.gaps:
            if line and whole and low < start <= high:
                yield Entry(start, _at(marks, start - 1), bytes(line))
            for gap in chunk.gaps:
                if low < gap.end <= high:
                    yield Entry(gap.end, _at(marks, gap.start), b"", _missing(run, gap))
            line, begin, whole = bytearray(), chunk.start, True
        if not chunk.data:
            if chunk.end <= start:
                return
            start = chunk.end
            continue
        line += chunk.data
        used = 0
        for size, feed in _cuts(line, begin):
            end = begin + used + size + feed
            # A line feed right behind a cut ends the line that was cut, and is no empty line.
            rest = size == 0 and begin + used == cut
            if whole and not rest and low < end <= high:
                yield Entry(end, _at(marks, end - 1), bytes(line[used : used + size]))
            used, whole, cut = used + size + feed, True, cut if feed else end
        del line[:used]
        begin += used
        start = chunk.end
    if line and whole and _ends_at(run, high):
        yield Entry(high, _at(marks, high - 1), bytes(line))


def _ends_at(run: Run, offset: int) -> bool:
    """Whether a line without a line feed ends here: the last one of a log, or the last one before a gap."""
    complete = Run.objects.filter(pk=run.pk, log_complete_at__isnull=False, log_stored=offset)
    return complete.exists() or LogGap.objects.filter(run=run, start=offset).exists()


def _missing(run: Run, gap: reader.MissingRange) -> str:
    """What is missing. Reading may have begun inside the gap, so its size is looked up."""
    start = LogGap.objects.filter(run=run, end=gap.end).values_list("start", flat=True).first()
    return f"{gap.end - (gap.start if start is None else start)} bytes are missing: {gap.reason}"


def _cuts(line: bytearray, begin: int) -> Iterator[tuple[int, int]]:
    """Where the lines end: the size of each, and whether a line feed follows.

    A long line is cut at multiples of LONGEST, counted from the begin of the log, that have no line feed in the
    LONGEST bytes before them. That does not depend on where reading began.
    """
    used = 0
    while used < len(line):
        feed = line.find(b"\n", used)
        stop = feed if feed >= 0 else len(line)
        cut = -(-(begin + used + LONGEST) // LONGEST) * LONGEST - begin
        if cut <= stop:
            yield cut - used, 0
            used = cut
        elif feed >= 0:
            yield feed - used, 1
            used = feed + 1
        else:
            return


def time_at(run: Run, offset: int) -> float:
    """When the byte at this offset was printed, by the host's clock."""
    for [marks] in _marks_of_piece(run=run.pk, offset=offset):
        if earlier := [wall for place, wall in marks if place <= offset]:
            return float(earlier[-1])
    for [index] in _index_of_segment(run=run.pk, offset=offset):
        if earlier := [wall for entry in index for place, wall in entry[5] if place <= offset]:
            return float(earlier[-1])
    return run.started_at.timestamp() if run.started_at else run.created_at.timestamp()


def _offset_after(run: Run, when: float, top: int) -> int:
    """An offset behind everything that was printed up to this moment."""
    later = (starts.column(run=run.pk, when=when) for starts in (_later_piece, _later_segment))
    return int(min([*chain.from_iterable(later), top]))


def _at(marks: list[tuple[int, float]], offset: int) -> float:
    place = bisect_right(marks, offset, key=lambda mark: mark[0])
    return marks[max(place - 1, 0)][1]
