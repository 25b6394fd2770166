"""What a host reported and the control plane has not stored yet.

The inbox is bounded: when it is full, the SSH window of the host fills too, and the host waits.
"""

from __future__ import annotations

import threading
from collections import deque
from itertools import islice

from agents.links.arrivals import memory_size
from agents.links.control_plane import Arrival

MAX_BYTES = 8 * 1024 * 1024
MAX_COUNT = 4096
BATCH = 64
BATCH_BYTES = 1024 * 1024


class Inbox:
    """Filled by the one thread that reads the link, emptied by the one worker thread that holds the host's work
    item."""

    def __init__(self) -> None:
        self._arrivals: deque[Arrival] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._closed = False
        self.full = False  # the reader waits in `put`, so the host must not be taken for unreachable

    def put(self, arrival: Arrival) -> bool:
        """Append an arrival; wait while the inbox is full. False when the inbox was closed meanwhile."""
        with self._changed:
            while not self._closed and (self._bytes >= MAX_BYTES or len(self._arrivals) >= MAX_COUNT):
                self.full = True
                self._changed.wait()
            self.full = False
            if self._closed:
                return False
            self._arrivals.append(arrival)
            self._bytes += memory_size(arrival)
            return True

    def batch(self) -> list[Arrival]:
        """The oldest few arrivals, left in place: only `done` removes them, once they are stored."""
        with self._changed:
            found: list[Arrival] = []
            weight = 0
            for arrival in islice(self._arrivals, BATCH):
                weight += memory_size(arrival)
                if found and weight > BATCH_BYTES:
                    break
                found.append(arrival)
            return found

    def done(self, count: int) -> None:
        """Remove the oldest `count` arrivals: they are stored."""
        with self._changed:
            for _ in range(min(count, len(self._arrivals))):
                self._bytes -= memory_size(self._arrivals.popleft())
            self._changed.notify()

    @property
    def nearly_full(self) -> bool:
        return self._bytes >= MAX_BYTES // 2 or len(self._arrivals) >= MAX_COUNT // 2

    def close(self) -> None:
        """Drop what is left: the host still has it and will report it again."""
        with self._changed:
            self._closed = True
            self._arrivals.clear()
            self._bytes = 0
            self._changed.notify()

    def __len__(self) -> int:
        return len(self._arrivals)
