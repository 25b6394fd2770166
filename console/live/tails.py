"""Follows the live ends of logs in this process: each new piece is read from the store once, for all viewers.

A viewer at the end of a log takes new bytes from the ring buffer of the tail. One task fills the ring when a hint
comes, and once a second without one. A viewer further back reads the store at its own pace. So 200 viewers of one log
cost one read for each new piece, and a viewer that does not read costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Protocol
from weakref import WeakKeyDictionary

from console.live import registry
from console.runtime import websocket_protocol
from console.runtime.database_threads import in_database_thread
from jobs.logs import live_end, reader
from jobs.logs.live_end import Status
from jobs.logs.pieces import Mark
from jobs.models import Run
from jobs.projects import log_storage

log = logging.getLogger(__name__)

# The size of the ring, and the most that one refresh reads.
RING_BYTES = 1 << 20
MAX_READ_BYTES = 1 << 18
# A viewer further back reads this much of the store at a time. To read only one frame at a time would cost more for
# finding the bytes than for reading them: from the start of a large log 15 times as much.
STRETCH_BYTES = 1 << 20
MAX_STRETCHES = 16
# A piece (or a gap) counts in the ring as at least this many bytes, because reading and holding it has a cost of its
# own.
MIN_COST = 1 << 10
PAST_ANY_END = 1 << 62
# How often a header is sent when only the size has grown.
STATUS_EVERY_S = 1.0
# After a refresh that found something, the next one waits PACE_S for each viewer, at most MAX_PACE_S. While 200 sockets
# are written to, new lines gather and are sent together: this saves each viewer more than the delay costs.
PACE_S, MAX_PACE_S = 0.00005, 0.05
# The largest frame that is sent to all viewers at once. A viewer takes more than this in frames of its own.
MAX_FRAME_BYTES = 1 << 16
# The most times that are told of one piece.
MAX_TIMES = 100


@dataclass(frozen=True, slots=True)
class Piece:
    """The bytes [start, end) of a log, or the reason why they are missing. `at`: when some of them were printed."""

    start: int
    end: int
    data: bytes
    gap: str = ""
    at: tuple[Mark, ...] = ()

    def times(self, run_id: str) -> dict[str, object]:
        """The message that tells when the bytes were printed."""
        marks = self.at[:: -(-len(self.at) // MAX_TIMES)]
        return {"run": run_id, "times": [[offset, round(wall, 3)] for offset, wall in marks]}


class Viewer(Protocol):
    """One viewer of a tail."""

    @property
    def patience_s(self) -> float:
        """How long new bytes may wait, so that more come with them. A tail has as much patience as its viewers."""

    def wake(self) -> None:
        """Called when there is something new."""

    def offer(self, piece: Piece, frame: bytes, times: bytes) -> bool:
        """Send the piece (`frame` is its wire form, `times` that of its times) if this viewer needs it next.

        Returns whether it did; never waits.
        """


def read_status(run_id: str) -> Status | None:
    return _with_reason(live_end.read_live_end(run_id, PAST_ANY_END)[0])


def _with_reason(status: Status | None) -> Status | None:
    """The status, with the reason why the stored log does not go on."""
    if status is None or status.complete or status.run not in log_storage.held_runs():
        return status
    held = log_storage.held_text(
        Run.objects.only("job_id", "log_stored", "log_complete_at").get(pk=status.run)
    )
    return replace(status, held=held)


def read(run_id: str, start: int, limit: int) -> Piece:
    """Read the store at `start`: some bytes, a gap, or nothing (yet)."""
    chunk = reader.read(Run(pk=run_id), start, limit)
    if chunk.gaps:
        return Piece(start, chunk.gaps[0].end, b"", chunk.gaps[0].reason)
    return Piece(start, chunk.end, chunk.data, at=chunk.at)


@dataclass(frozen=True, slots=True)
class TailNews:
    """The result of a refresh. `more_than_bytes`: something other than the length has changed."""

    pieces: list[Piece] = field(default_factory=list)
    changed: bool = False
    more_than_bytes: bool = False


class Tail:
    """The live end of one run's log. This process has read up to `end`; the ring holds the pieces before `end`."""

    def __init__(self, run_id: str, first: Status) -> None:
        self.status = first
        self.end = first.stored
        self._run_id = run_id
        self._ring: list[Piece] = []
        self._starts: list[int] = []
        self._held = 0
        self._viewers: set[Viewer] = set()
        self._task: asyncio.Task[None] | None = None
        self._failing = False

    def from_ring(self, cursor: int, limit: int) -> Piece | None:
        """At most `limit` bytes from the cursor on.

        An empty piece: nothing is new. None: the viewer must ask the store.
        """
        if cursor >= self.end or limit <= 0:
            return Piece(cursor, cursor, b"")
        if self._starts and cursor >= self._starts[0]:
            return _joined(self._ring, bisect_right(self._starts, cursor) - 1, cursor, limit)
        return None

    async def read(self, cursor: int, limit: int) -> Piece:
        """Read the store, a stretch at a time. A stretch that one viewer has read is kept for the next viewer."""
        place = self._run_id, cursor // STRETCH_BYTES
        known = _stretches.get(place)
        if known is None or not known.start <= cursor < known.end:
            until = min((place[1] + 1) * STRETCH_BYTES, self.end)
            known = await in_database_thread(read, self._run_id, cursor, until - cursor)
            if known.end > cursor and not known.gap:
                _stretches[place] = known
                while len(_stretches) > MAX_STRETCHES:
                    del _stretches[next(iter(_stretches))]
        if known.gap or known.end == cursor:
            return known
        data = known.data[cursor - known.start :][:limit]
        return Piece(cursor, cursor + len(data), data, at=_marks_in(known.at, cursor, cursor + len(data)))

    def add(self, viewer: Viewer) -> None:
        self._viewers.add(viewer)
        if self._task is None:
            self._task = asyncio.create_task(self._follow(), name=f"tail {self._run_id}")

    def discard(self, viewer: Viewer) -> bool:
        """Returns True when this was the last viewer."""
        self._viewers.discard(viewer)
        if not self._viewers and self._task is not None:
            self._task.cancel()
            self._task = None
        return not self._viewers

    async def _follow(self) -> None:
        async with registry.of_this_loop().watch(f"log:{self._run_id}") as hinted:
            while True:
                news = await self._refresh_safely()
                left = self._offer_to_all(news.pieces)
                for viewer in self._viewers if news.more_than_bytes else left:
                    viewer.wake()
                if news.changed:
                    patience = min((viewer.patience_s for viewer in self._viewers), default=0.0)
                    await asyncio.sleep(max(min(PACE_S * len(self._viewers), MAX_PACE_S), patience))
                if not news.changed or self.end >= self.status.stored:
                    # Everything is read. A hint that came in the meantime ends this wait at once.
                    await hinted.wait()

    def _offer_to_all(self, pieces: list[Piece]) -> set[Viewer]:
        """Offer the new bytes as one frame to all viewers.

        Returns the viewers that did not take it and must be woken.
        """
        if not pieces:
            return set()
        size = sum(len(piece.data) for piece in pieces)
        if size > MAX_FRAME_BYTES or any(piece.gap for piece in pieces):
            return self._viewers
        marks = tuple(mark for piece in pieces for mark in piece.at)
        whole = Piece(pieces[0].start, pieces[-1].end, b"".join(piece.data for piece in pieces), at=marks)
        frame = websocket_protocol.binary_frame(whole.data)
        times = websocket_protocol.text_frame(json.dumps(whole.times(self._run_id))) if marks else b""
        return {viewer for viewer in self._viewers if not viewer.offer(whole, frame, times)}

    async def _refresh_safely(self) -> TailNews:
        """Refresh.

        A refresh that fails (the database is unavailable) counts as one without news; the next is in a second.
        """
        try:
            news = await self._refresh()
        except Exception:
            if not self._failing:
                log.exception("Cannot read the log of run %s; trying again every second", self._run_id)
            self._failing = True
            return TailNews()
        self._failing = False
        return news

    async def _refresh(self) -> TailNews:
        """Read the new pieces into the ring."""
        seen, pieces = await in_database_thread(_news, self._run_id, self.end)
        before, self.status = self.status, seen or self.status
        for piece in pieces:
            self._append(piece)
        flood = self.status.stored - self.end > RING_BYTES
        if flood:
            # Output comes faster than a viewer can follow. Viewers that are behind read the store.
            self._ring, self._starts, self._held = [], [], 0
            self.end = self.status.stored
        changed = before != self.status or bool(pieces)
        # The status is the same except for the length.
        grown = replace(before, size=self.status.size, stored=self.status.stored) == self.status
        return TailNews(pieces, changed, changed and (flood or not pieces or not grown))

    def _append(self, piece: Piece) -> None:
        self._ring.append(piece)
        self._starts.append(piece.start)
        self._held += _ring_cost(piece)
        self.end = piece.end
        while self._held > RING_BYTES:
            self._held -= _ring_cost(self._ring.pop(0))
            self._starts.pop(0)


def _news(run_id: str, start: int) -> tuple[Status | None, list[Piece]]:
    found, blocks = live_end.read_live_end(run_id, start)
    seen = _with_reason(found)
    pieces: list[Piece] = []
    left = MAX_READ_BYTES
    for block in blocks:
        if block.start != start or left <= 0:
            break
        pieces.append(Piece(block.start, block.end, block.raw(), at=block.at))
        start = block.end
        left -= _ring_cost(pieces[-1])
    if pieces or seen is None or start >= seen.stored:
        return seen, pieces
    # The piece was rolled into a file or joined with others, or it is missing. Do not read beyond the length in the
    # status, although more may have come: status and pieces must belong together.
    while start < seen.stored and left > 0:
        piece = read(run_id, start, min(left, seen.stored - start))
        if piece.end == start:
            break
        pieces.append(piece)
        start = piece.end
        left -= _ring_cost(piece)
    return seen, pieces


def _ring_cost(piece: Piece) -> int:
    return max(MIN_COST, len(piece.data))


def _joined(ring: list[Piece], first: int, cursor: int, limit: int) -> Piece:
    """The bytes from the cursor on, joined over several pieces. A gap is returned alone."""
    if ring[first].gap:
        return Piece(cursor, ring[first].end, b"", ring[first].gap)
    parts, marks = [ring[first].data[cursor - ring[first].start :]], list(ring[first].at)
    held = len(parts[0])
    for piece in islice(ring, first + 1, None):
        if held >= limit or piece.gap:
            break
        parts.append(piece.data)
        marks += piece.at
        held += len(piece.data)
    data = b"".join(parts)[:limit]
    return Piece(cursor, cursor + len(data), data, at=_marks_in(marks, cursor, cursor + len(data)))


def _marks_in(marks: Sequence[Mark], start: int, end: int) -> tuple[Mark, ...]:
    return tuple(mark for mark in marks if start <= mark[0] < end)


# The stretches that viewers further back have read, of all runs, the oldest first. At most MAX_STRETCHES are kept.
_stretches: dict[tuple[str, int], Piece] = {}
_tails: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Tail]] = WeakKeyDictionary()


@contextlib.asynccontextmanager
async def follow(run_id: str, viewer: Viewer) -> AsyncIterator[Tail | None]:
    """Follow a run's log: the tail offers new bytes to the viewer. Yields None when there is no such run."""
    tails = _tails.setdefault(asyncio.get_running_loop(), {})
    first = None if run_id in tails else await in_database_thread(read_status, run_id)
    if run_id not in tails:
        if first is None:
            yield None
            return
        tails[run_id] = Tail(run_id, first)
    tail = tails[run_id]
    tail.add(viewer)
    try:
        yield tail
    finally:
        if tail.discard(viewer) and tails.get(run_id) is tail:
            del tails[run_id]
