"""A few threads that do the database work of many hosts: one turn at a time for each host, first come first served.

They never touch a network connection to a host, so a slow host cannot hold one up.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import Protocol
from weakref import WeakSet

from django.db import connection

from agents.infra.database_errors import DATABASE_UNAVAILABLE

logger = logging.getLogger(__name__)


class Worker(Protocol):
    def turn(self) -> bool:
        """Do a bounded piece of work; True if there is more."""


class WorkQueue:
    def __init__(self, clerks: int) -> None:
        self._queue: deque[Worker] = deque()
        self._queued: set[Worker] = set()
        self._at_work: set[Worker] = set()
        self._again: set[Worker] = set()
        self._later: dict[Worker, float] = {}
        # Told of already: an outage is one line for each host, not one a second.
        self._failing: WeakSet[Worker] = WeakSet()
        self._changed = threading.Condition()
        self._stopping = False
        self._threads = [
            threading.Thread(target=self._clerk, name=f"clerk {number}", daemon=True)
            for number in range(clerks)
        ]
        for thread in self._threads:
            thread.start()

    def ask(self, taker: Worker, within_s: float = 0.0) -> None:
        """A turn soon. Asking twice before it comes is asking once; asking during it gives another one.

        `within_s`: it may wait so long for more to come, so that all is done in one turn.
        """
        with self._changed:
            if within_s > 0:
                if taker not in self._queued and taker not in self._later:
                    self._later[taker] = time.monotonic() + within_s
                    self._changed.notify()
            else:
                self._enqueue(taker)

    def _enqueue(self, taker: Worker) -> None:
        self._later.pop(taker, None)
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
                except Exception as problem:
                    # The taker kept its work; its next tick asks again.
                    if taker not in self._failing and isinstance(problem, DATABASE_UNAVAILABLE):
                        logger.warning("a host's turn waits for the database: %s", problem)
                    elif taker not in self._failing:
                        logger.exception("a host's turn failed; it is tried again until it does not")
                    self._failing.add(taker)
                    connection.close()
                finally:
                    self._finished(taker, more)
        finally:
            connection.close()

    def _next(self) -> Worker | None:
        with self._changed:
            while not self._ripe() and not self._stopping:
                soonest = min(self._later.values(), default=None)
                self._changed.wait(None if soonest is None else max(0.0, soonest - time.monotonic()))
            if self._stopping:
                return None
            taker = self._queue.popleft()
            self._queued.discard(taker)
            self._at_work.add(taker)
            return taker

    def _ripe(self) -> bool:
        """Whether somebody is to have a turn now."""
        now = time.monotonic()
        for taker in [taker for taker, due in self._later.items() if due <= now]:
            self._enqueue(taker)
        return bool(self._queue)

    def _finished(self, taker: Worker, more: bool) -> None:
        with self._changed:
            self._at_work.discard(taker)
            if more or taker in self._again:
                self._again.discard(taker)
                self._queued.add(taker)
                self._queue.append(taker)
                self._changed.notify()
