"""The thread of a dispatcher that settles what hosts report about their preparations (prepared.py).

To settle locks the jobs. All hosts of a large job report a few times a second. If the threads that store reports
settled too, all of them would wait for the lock of that one job, and the log lines of other jobs behind them. So they
store and go on, and this thread settles for all that gathered. If the process dies in between, the sweep settles.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from django.db import connection
from django.utils import timezone

from agents.infra.database_errors import DATABASE_UNAVAILABLE
from jobs.host_sync import prepared
from jobs.host_sync.database_connection import database_connection

log = logging.getLogger(__name__)

# How far the hosts are is written so often, if nothing else is to be settled.
PROGRESS_S = 0.5
RETRY_S = 0.5
MAX_PAUSE_S = 0.25

# Called with the jobs to decide about, and with the hosts on which something else is wanted.
Settled = Callable[[set[int], set[int]], None]


class Settler(Protocol):
    """Settles the preparations of hosts that reported something about them."""

    def submit(self, host_id: int, progress: bool = False) -> None: ...

    def stop(self, timeout_s: float = 10.0) -> None: ...

    def stuck_s(self) -> float: ...


class SettlerThread:
    def __init__(self, settled: Settled) -> None:
        self._settled = settled
        self._hosts: set[int] = set()
        self._is_urgent = False
        self._began_at = self._may_begin_at = 0.0
        self._busy_since: float | None = None
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._work, name="settler", daemon=True)
        self._thread.start()

    def submit(self, host_id: int, progress: bool = False) -> None:
        """`progress`: the host is further with something, and has not ended anything."""
        with self._changed:
            self._hosts.add(host_id)
            self._is_urgent |= not progress
            self._changed.notify()

    def stop(self, timeout_s: float = 10.0) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def stuck_s(self) -> float:
        """For how long the thread has been settling one batch."""
        since = self._busy_since
        return time.monotonic() - since if since is not None else 0.0

    def _work(self) -> None:
        try:
            while hosts := self._next():
                self._busy_since = self._began_at = time.monotonic()
                self._settle(hosts)
                self._busy_since = None
                # Half of the time is left to the jobs themselves, and more reports gather meanwhile.
                now = time.monotonic()
                self._may_begin_at = now + min(MAX_PAUSE_S, now - self._began_at)
        finally:
            connection.close()

    def _settle(self, hosts: set[int]) -> None:
        names = sorted(hosts)
        try:
            with database_connection():
                self._settled(*prepared.settle(timezone.now(), hosts))
        except DATABASE_UNAVAILABLE as problem:
            log.warning("The preparations of hosts %s wait for the database: %s", names, problem)
            time.sleep(RETRY_S)
            for host in hosts:
                self.submit(host)
        except Exception:
            log.exception("The preparations of hosts %s could not be settled; the sweep will.", names)
            time.sleep(RETRY_S)

    def _next(self) -> set[int]:
        """The hosts that have reported something, when it is time for them. Empty: the thread is to end."""
        with self._changed:
            while (wait := self._wait_s()) != 0.0 and not self._stopping:
                self._changed.wait(wait)
            hosts, self._hosts, self._is_urgent = self._hosts, set(), False
            return set() if self._stopping else hosts

    def _wait_s(self) -> float | None:
        """None: until something is submitted."""
        if not self._hosts:
            return None
        begin = self._may_begin_at if self._is_urgent else self._began_at + PROGRESS_S
        return max(0.0, begin - time.monotonic())
