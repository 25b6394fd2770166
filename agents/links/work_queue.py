"""A few worker threads that do the database work of many hosts: one work item of a host at a time, in order of arrival.

The worker threads never use a connection to a host, so a slow host cannot hold them up.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from typing import Protocol
from weakref import WeakSet

from django.db import connection

from agents.infra.database_errors import DATABASE_UNAVAILABLE

logger = logging.getLogger(__name__)


class WorkItem(Protocol):
    def do_work(self) -> bool:
        """Do a bounded piece of work; True if there is more."""


class WorkQueue:
    def __init__(self, threads: int) -> None:
        self._queue: deque[WorkItem] = deque()
        self._queued: dict[WorkItem, float] = {}  # since when
        self._at_work: dict[WorkItem, float] = {}  # since when
        self._again: set[WorkItem] = set()
        self._later: dict[WorkItem, float] = {}
        # Already in the log: an outage is one line for each host, not one a second.
        self._failing: WeakSet[WorkItem] = WeakSet()
        self._changed = threading.Condition()
        self._stopping = False
        self._threads = [
            threading.Thread(target=self._work, name=f"worker {number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def enqueue(self, item: WorkItem, within_s: float = 0.0) -> None:
        """Have the item's work done soon.

        An item that is queued twice is worked on once; an item that is queued while it is worked on is worked on again.
        `within_s`: the work may wait so long for more to come, so that all of it is done at once.
        """
        with self._changed:
            if within_s > 0:
                due = time.monotonic() + within_s
                if item not in self._queued and due < self._later.get(item, math.inf):
                    self._later[item] = due
                    self._changed.notify()
            else:
                self._put(item)

    def _put(self, item: WorkItem) -> None:
        self._later.pop(item, None)
        if item in self._at_work:
            self._again.add(item)
        elif item not in self._queued:
            self._append(item)

    def oldest_work(self) -> tuple[WorkItem | None, float]:
        """The item whose work has been done, or has waited for a thread, for longest; and for how many seconds."""
        with self._changed:
            since = self._queued | self._at_work
            oldest = min(since, key=since.__getitem__, default=None)
            return oldest, (0.0 if oldest is None else time.monotonic() - since[oldest])

    def threads_gone(self) -> int:
        """How many worker threads have ended although the queue has not."""
        return sum(not thread.is_alive() for thread in self._threads) if not self._stopping else 0

    def stop(self, timeout_s: float = 10.0) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout_s)

    def _work(self) -> None:
        try:
            while (item := self._next()) is not None:
                more = False
                try:
                    more = item.do_work()
                    self._failing.discard(item)
                except Exception as problem:
                    # The item kept its work; its next tick queues it again.
                    if item not in self._failing and isinstance(problem, DATABASE_UNAVAILABLE):
                        logger.warning("the database work of a host waits for the database: %s", problem)
                    elif item not in self._failing:
                        logger.exception(
                            "the database work of a host failed; it is retried until it succeeds"
                        )
                    self._failing.add(item)
                    connection.close()
                finally:
                    self._finished(item, more)
        finally:
            connection.close()

    def _next(self) -> WorkItem | None:
        with self._changed:
            while not self._any_due() and not self._stopping:
                soonest = min(self._later.values(), default=None)
                self._changed.wait(None if soonest is None else max(0.0, soonest - time.monotonic()))
            if self._stopping:
                return None
            item = self._queue.popleft()
            del self._queued[item]
            self._at_work[item] = time.monotonic()
            return item

    def _any_due(self) -> bool:
        """Whether an item is to be worked on now."""
        now = time.monotonic()
        for item in [item for item, due in self._later.items() if due <= now]:
            self._put(item)
        return bool(self._queue)

    def _finished(self, item: WorkItem, more: bool) -> None:
        with self._changed:
            del self._at_work[item]
            if more or item in self._again:
                self._again.discard(item)
                self._append(item)

    def _append(self, item: WorkItem) -> None:
        self._queued[item] = time.monotonic()
        self._queue.append(item)
        self._changed.notify()
