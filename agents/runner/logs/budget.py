"""The log budget, the keeper's half: a bound on the disk that a log may take, and times of what was written.

Offsets here are offsets in the file. A hole is written down before it is punched, so no reader takes zeros for text.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import time

from agents.runner.files import make_spares, read_cut, write_with_spares
from agents.runner.linux import IN_MODIFY, Inotify, punch_hole

MARK = struct.Struct("<Qd")


class LogBudget:
    """Looks at a growing log now and then: seldom when it grows slowly, often when it nears its budget."""

    def __init__(self, directory: str, fd: int, budget_mb: int, fresh: bool = False) -> None:
        self._directory = directory
        self._fd = fd
        self._budget = budget_mb << 20
        # A log that is just being made has no holes.
        self._generation, self._holes = (0, []) if fresh else read_cut(directory)
        self._size = 0
        self._used = 0
        self.quiet = False
        self._looked = time.monotonic()
        self._begun = self._next_mark = self._looked
        self._inotify = Inotify()
        self._inotify.watch(os.path.join(directory, "log"), IN_MODIFY)
        self.fd = self._inotify.fd

    def drain(self) -> None:
        """Read the inotify events: they only say that the log grew."""
        for _ in self._inotify.read():
            pass

    def check(self) -> float:
        """Do what is due. Returns after how many seconds to check again."""
        now = time.monotonic()
        found = os.fstat(self._fd)
        if found.st_size < self._size:  # the program cut its own log: the holes are new text now
            self._generation += 1
            self._holes = []
            self._write_cut()
        if found.st_size != self._size and now >= self._next_mark:
            self._add_mark(found.st_size, now)
        used = found.st_blocks * 512
        grown = (used - self._used) / max(now - self._looked, 0.001)
        if used > self._budget:
            self._punch(found.st_size)
            used = os.fstat(self._fd).st_blocks * 512
        self.quiet = found.st_size == self._size
        self._size, self._used, self._looked = found.st_size, used, now
        if self.quiet:
            return 1.0
        # Check again before a fast writer has used a quarter of what is left of the budget.
        return min(1.0, max(0.004, (self._budget - used) / 4 / max(grown, 256e6)))

    def _add_mark(self, size: int, now: float) -> None:
        # One mark a second at first, then ever fewer: a log of any length has a few thousand marks.
        self._next_mark = now + max(1.0, (now - self._begun) / 1000)
        try:
            with open(os.path.join(self._directory, "log.marks"), "ab") as file:
                file.write(MARK.pack(size, time.time()))
        except OSError:
            pass  # a full disk: only the times become less exact

    def _punch(self, size: int) -> None:
        """Give up the middle: the head shows how the log began, the tail how it ended."""
        head = self._budget // 4 // 65536 * 65536
        start = max(head, self._holes[-1][1] if self._holes else 0)
        end = (size - self._budget // 2) // 65536 * 65536
        if end <= start:
            return
        before = self._holes
        self._holes = [[before[-1][0] if before else start, end]]
        if self._write_cut() and punch_hole(self._fd, start, end - start):
            with contextlib.suppress(OSError):
                make_spares(self._directory)  # writing that down on a full disk may have used one
            return
        # This file system cannot free a part of a file, or not even the note fits: then nothing is lost.
        self._holes = before
        self._write_cut()
        self._budget = max(self._budget, size * 2)

    def _write_cut(self) -> bool:
        document = {"generation": self._generation, "holes": self._holes}
        try:
            write_with_spares(self._directory, "log.cut", json.dumps(document).encode(), False)
            return True
        except OSError:
            return False
