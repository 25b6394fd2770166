"""Places for work that may wait long for somebody else: so many at once in this process, with a share for each client.

Nobody waits for a place: who gets none is told so at once.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class AllTaken(Exception):
    """No place is free for this share at this moment."""


class Places:
    def __init__(self, most: int, each: int | None = None) -> None:
        """`each`: how many one share may have, if that is less than it leaves free."""
        self.most, self.each = most, each
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()

    def take(self, share: str) -> None:
        """Raises AllTaken. A share has no more places than it leaves free, so that however much one client asks for,
        the next one has a place."""
        with self._lock:
            if self.each is not None and self._taken[share] >= self.each:
                raise AllTaken
            if self._taken[share] >= self.most - self._taken.total():
                raise AllTaken
            self._taken[share] += 1

    def give_back(self, share: str) -> None:
        with self._lock:
            self._taken[share] -= 1
            self._taken += Counter()

    @contextmanager
    def place(self, share: str) -> Iterator[None]:
        """Raises AllTaken."""
        self.take(share)
        try:
            yield
        finally:
            self.give_back(share)

    def total(self) -> int:
        return self._taken.total()
