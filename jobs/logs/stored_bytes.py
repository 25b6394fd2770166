"""Read the bytes of a stored log as the program wrote them, whether they lie in rows, in files or in a gap.

They may contain secrets, so nothing here is for people: whoever shows a log reads it by `reader.py`.

[0, run.log_stored) is covered, without overlap, by pieces (rows), segments (files) and recorded gaps. Finding an offset
is one index lookup and one read, however long the log is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from django.db.models import BigIntegerField, QuerySet, Subquery
from django.db.models.functions import Coalesce

from agents.infra.sql import Parameter, SelectStatement
from jobs.logs import storage
from jobs.logs.pieces import Block, Mark
from jobs.logs.segments import stored_block
from jobs.models import LogGap, LogPiece, LogSegment, Run

NO_FILE = "The file that held this part of the log is not there any more."
STREAM_BYTES = 1024 * 1024
PIECES_AT_ONCE = 32

# Whatever shows or searches a log asks these, of each replica.
_gap_at = SelectStatement(
    lambda: (
        LogGap.objects.filter(
            run=Parameter("run"), start__lte=Parameter("offset"), end__gt=Parameter("offset")
        )
        # The default order of gaps would join the runs, so the order is given.
        .order_by("start")
        .values_list("start", "end", "reason")[:1]
    )
)
_segment_at = SelectStatement(
    lambda: (
        LogSegment.objects.filter(run=Parameter("run"), start__lte=Parameter("offset"))
        .order_by("-start")
        .values_list("end", "key", "index")[:1]
    )
)


def _pieces_from_query() -> QuerySet[LogPiece, Any]:
    """The last piece that begins at or before the offset, by the index, and what follows it: one statement, so that it
    sees the pieces before or after they are joined or rolled, never in between."""
    pieces, offset = LogPiece.objects.filter(run=Parameter("run")), Parameter("offset", BigIntegerField())
    at_or_before = pieces.filter(start__lte=offset).order_by("-start").values("start")[:1]
    rows = pieces.filter(start__gte=Coalesce(Subquery(at_or_before), offset)).order_by("start")
    return rows.values_list("start", "end", "z", "data", "at")[: PIECES_AT_ONCE + 1]


_pieces_from = SelectStatement(_pieces_from_query)


@dataclass(frozen=True, slots=True)
class MissingRange:
    """A range of a log that is missing for good, and why."""

    start: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes [start, end) of a log, all of them.

    `gaps` lie between the requested offset and `start`; the next read continues at `end`. Without data and gaps,
    nothing is stored there yet. `at` holds when some of the bytes were printed, by the host's clock.
    """

    start: int
    end: int
    data: bytes = b""
    gaps: tuple[MissingRange, ...] = ()
    at: tuple[Mark, ...] = ()


class SegmentMissing(Exception):
    """A segment without its file: somebody removed it from the Storage."""

    def __init__(self, end: int) -> None:
        super().__init__(NO_FILE)
        self.end = end


def read(run: Run, start: int, limit: int) -> Chunk:
    """Read at most `limit` bytes from `start` on. Gaps before them are skipped and listed in the chunk."""
    start, gaps = _past_gaps(run, max(start, 0))
    position, data, at = start, bytearray(), []
    try:
        for block in _blocks(run, start):
            if block.start > position or len(data) >= limit:
                break
            part = block.raw()[position - block.start :][: limit - len(data)]
            at += [mark for mark in block.at if position <= mark[0] < position + len(part)]
            data += part
            position += len(part)
    except SegmentMissing as gone:
        if not data:
            return Chunk(gone.end, gone.end, b"", (*gaps, MissingRange(start, gone.end, NO_FILE)))
    return Chunk(start, position, bytes(data), gaps, tuple(at))


def stream(run: Run, start: int, end: int) -> Iterator[bytes]:
    """Yield everything that is stored of [start, end), in order. Gaps are skipped."""
    yield from chunks(read, run, start, end)


def chunks(read_from: Callable[[Run, int, int], Chunk], run: Run, start: int, end: int) -> Iterator[bytes]:
    """Yield what `read_from` reads of [start, end), in order."""
    while start < end:
        chunk = read_from(run, start, min(STREAM_BYTES, end - start))
        if chunk.data and chunk.start < end:
            yield chunk.data[: end - chunk.start]
        elif not chunk.gaps:
            return
        start = chunk.end


def _past_gaps(run: Run, start: int) -> tuple[int, tuple[MissingRange, ...]]:
    gaps: list[MissingRange] = []
    while found := _gap_at(run=run.pk, offset=start):
        [(begin, end, reason)] = found
        gaps.append(MissingRange(max(begin, start), end, reason))
        start = end
    return start, tuple(gaps)


def _blocks(run: Run, offset: int) -> Iterator[Block]:
    """Yield the blocks from the one that holds `offset` on. Rows may become a segment meanwhile, never the reverse."""
    while True:
        before = offset
        for block in _from_segment(run, offset):
            yield block
            offset = block.end
        if offset > before:
            continue
        pieces = _pieces(run, offset)
        if not pieces or pieces[0].start > offset:
            # This is a gap, or the pieces became a segment since the segments were read.
            pieces = list(_from_segment(run, offset)) or pieces
        for block in pieces:
            yield block
        if len(pieces) < PIECES_AT_ONCE:
            return
        offset = pieces[-1].end


def _from_segment(run: Run, offset: int) -> Iterator[Block]:
    found = _segment_at(run=run.pk, offset=offset)
    if not found or found[0][0] <= offset:
        return
    [(end_of_segment, key, index)] = found
    try:
        opened = storage.store().open(key, "rb")
    except FileNotFoundError:
        raise SegmentMissing(end_of_segment) from None
    with opened as file:
        for start, end, position, length, z, at in index:
            if end > offset:
                file.seek(position)
                marks = tuple((int(place), float(wall)) for place, wall in at)
                yield Block(start, end, z, file.read(length), marks)


def _pieces(run: Run, offset: int) -> list[Block]:
    rows = _pieces_from(run=run.pk, offset=offset)
    return [stored_block(*row) for row in rows if row[1] > offset]
