"""A few threads that do the database work of many hosts: one turn at a time for each host, first come first served.

They never touch a network connection to a host, so a slow host cannot hold one up.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import Protocol
from weakref import WeakSet

from django.db import connection

logger = logging.getLogger(__name__)


class Taker(Protocol):
    def turn(self) -> bool:
        """Do a bounded piece of work; True if there is more."""


class Turns:
    def __init__(self, clerks: int) -> None:
        self._queue: deque[Taker] = deque()
        self._queued: set[Taker] = set()
        self._at_work: set[Taker] = set()
        self._again: set[Taker] = set()
        # Told of already: an outage is one line for each host, not one a second.
        self._failing: WeakSet[Taker] = WeakSet()
        self._changed = threading.Condition()
        self._stopping = False
        self._threads = [
            threading.Thread(target=self._clerk, name=f"clerk {number}", daemon=True)
            for number in range(clerks)
        ]
        for thread in self._threads:
            thread.start()

    def ask(self, taker: Taker) -> None:
        """A turn soon. Asking twice before it comes is asking once; asking during it gives another one."""
        with self._changed:
            if taker in self._at_work:
                self._again.add(taker)
            elif taker not in self._queued:
                self._queued.add(taker)
                self._queue.append(taker)
                self._changed.notify()

    def stop(self, timeout_s: float = 10.0) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout_s)

    def _clerk(self) -> None:
        try:
            while (taker := self._next()) is not None:
                more = False
                try:
                    more = taker.turn()
                    self._failing.discard(taker)
                except Exception:
                    # A database that is away, most likely. The taker kept its work; its next tick asks again.
                    if taker not in self._failing:
                        logger.exception("a host's turn failed; it is tried again until it does not")
                    self._failing.add(taker)
                    connection.close()
                finally:
                    self._finished(taker, more)
        finally:
            connection.close()

    def _next(self) -> Taker | None:
        with self._changed:
            while not self._queue and not self._stopping:
                self._changed.wait()
            if self._stopping:
                return None
            taker = self._queue.popleft()
            self._queued.discard(taker)
            self._at_work.add(taker)
            return taker

    def _finished(self, taker: Taker, more: bool) -> None:
        with self._changed:
            self._at_work.discard(taker)
            if more or taker in self._again:
                self._again.discard(taker)
                self._queued.add(taker)
                self._queue.append(taker)
                self._changed.notify()
