"""What a host reported and the control plane has not stored yet.

The inbox is bounded: when it is full, the SSH window of the host fills too, and the host waits.

Recordings of shells have a queue of their own, and each batch takes only a little of it: what fifty shells print comes
at once, and the next line of a log overtakes it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from agents.links.arrivals import memory_size
from agents.links.control_plane import Arrival, Frame, RecordingEnd, RecordingPiece

MAX_BYTES = 8 * 1024 * 1024
MAX_COUNT = 4096
BATCH = 64
BATCH_BYTES = 2 * 1024 * 1024
# Of recordings, in bytes as they were recorded: they are unpacked and packed, 10 ms of a processor.
BATCH_RECORDED = 512 * 1024
# A runner sends so many bytes in one frame only of a log that is behind. Each batch that is stored costs some
# milliseconds whatever its size, so such frames are gathered. A runner sends 8 MiB ahead: it prepares the next batches
# while this one is stored.
BULK_FRAME, GATHER_BYTES, GATHER_S = 64 * 1024, 1536 * 1024, 0.02


class Inbox:
    """Filled by the one thread that reads the link, emptied by the one worker thread that holds the host's work
    item."""

    def __init__(self) -> None:
        self._arrivals: deque[Arrival] = deque()
        self._recordings: deque[Arrival] = deque()
        self._bytes = self._log_bytes = 0
        self._bulk_frames = 0
        self._changed = threading.Condition()
        self._closed = False
        self.full = False  # the reader waits in `put`, so the host must not be taken for unreachable

    def put(self, arrival: Arrival) -> bool:
        """Append an arrival; wait while the inbox is full. False when the inbox was closed meanwhile."""
        with self._changed:
            while not self._closed and (self._bytes >= MAX_BYTES or len(self) >= MAX_COUNT):
                self.full = True
                self._changed.wait()
            self.full = False
            if self._closed:
                return False
            self._queue_of(arrival).append(arrival)
            self._count(arrival, 1)
            return True

    def _queue_of(self, arrival: Arrival) -> deque[Arrival]:
        recorded = isinstance(arrival.what, RecordingPiece | RecordingEnd)
        return self._recordings if recorded else self._arrivals

    def _count(self, arrival: Arrival, sign: int) -> None:
        self._bytes += sign * memory_size(arrival)
        if (size := _bulk_size(arrival)) > 0:
            self._bulk_frames += sign
            self._log_bytes += sign * size

    def batch(self) -> list[Arrival]:
        """The oldest few arrivals, left in place: only `done` removes them, once they are stored."""
        with self._changed:
            found = _oldest(self._arrivals, BATCH_BYTES, memory_size)
            return found + _oldest(self._recordings, BATCH_RECORDED, _recorded_size)

    def done(self, batch: Sequence[Arrival]) -> None:
        """Remove this batch: it is stored."""
        with self._changed:
            for arrival in batch:
                if waiting := self._queue_of(arrival):
                    self._count(waiting.popleft(), -1)
            self._changed.notify()

    def gather_s(self) -> float:
        """For how many seconds the database work may wait for more, so that more is stored at once.

        0 unless nothing waits but large frames of a log that is far behind, and few of them.
        """
        with self._changed:
            only_bulk = 0 < self._bulk_frames == len(self)
            return GATHER_S if only_bulk and self._log_bytes < GATHER_BYTES else 0.0

    @property
    def nearly_full(self) -> bool:
        return self._bytes >= MAX_BYTES // 2 or len(self) >= MAX_COUNT // 2

    def close(self) -> None:
        """Drop what is left: the host still has it and will report it again."""
        with self._changed:
            self._closed = True
            self._arrivals.clear()
            self._recordings.clear()
            self._bytes = self._log_bytes = self._bulk_frames = 0
            self._changed.notify()

    def __len__(self) -> int:
        return len(self._arrivals) + len(self._recordings)


def _oldest(waiting: Iterable[Arrival], limit: int, weight_of: Callable[[Arrival], int]) -> list[Arrival]:
    """The first few, at least one, until their weights are more than the limit."""
    found: list[Arrival] = []
    weight = 0
    for arrival in islice(waiting, BATCH):
        weight += weight_of(arrival)
        if found and weight > limit:
            break
        found.append(arrival)
    return found


def _recorded_size(arrival: Arrival) -> int:
    what = arrival.what
    return what.end - what.start if isinstance(what, RecordingPiece) else 0


def _bulk_size(arrival: Arrival) -> int:
    """How many bytes of a log that is far behind this is; 0 for anything else."""
    frame = arrival.what
    size = frame.end - frame.start if isinstance(frame, Frame) else 0
    return size if size >= BULK_FRAME else 0
