"""The thread of a dispatcher that decides about jobs and places them.

The threads of the hosts write facts and go on; this thread decides. While it decides about some jobs, others gather,
and the next batch takes them all. So a single fact is answered at once, and a flood of facts costs few transactions.
If the process dies in between, the jobs are marked as due and the sweep finds them.

The same thread keeps in mind when the restarts and retries that it has put off are due, so that none waits for the next
sweep, too.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Protocol

from django.db import connection
from django.utils import timezone

from agents.infra.clock import Clock
from agents.infra.database_errors import DATABASE_UNAVAILABLE
from jobs.host_sync.database_connection import database_connection
from jobs.lifecycle import faulty_jobs
from jobs.lifecycle.advance import Advanced, advance_quietly
from jobs.scheduling.scheduler import schedule_quietly
from jobs.wake import hints

log = logging.getLogger(__name__)

# Wakes the links of this process to these hosts, and returns the hosts that other processes hold.
WakeLinks = Callable[[Collection[int]], Collection[int]]

BATCH = 200
RETRY_S = 0.5
MAX_PAUSE_S = 0.05
ROLL_EVERY_S = 0.5
# A restart or a retry is looked at so long after the end of its wait: then the wait is over by the clock that the
# decision reads.
PAST_WAIT_S = 0.001


class Decider(Protocol):
    """Decides about the jobs that hosts reported something about."""

    def submit(
        self, jobs: Collection[int], long_tails: Collection[str] = (), place: bool = False
    ) -> None: ...

    def stop(self, timeout_s: float = 10.0) -> None: ...

    def stuck_s(self) -> float: ...


class DeciderThread:
    """The one thread of a dispatcher that decides and places, for everything that was submitted meanwhile."""

    def __init__(self, wake_links: WakeLinks) -> None:
        self._wake_links = wake_links
        self._jobs: set[int] = set()
        self._long_tails: set[str] = set()
        self._place = False
        # After a decision, the thread pauses deciding for as long as the decision took, and after a placement it pauses
        # placing. So half of the time is left to the links, and more work gathers meanwhile. The pauses are separate:
        # a placement does not wait for the pause after a decision.
        self._decides_at = self._places_at = 0.0
        # Jobs of which a restart, or the next attempt, waits; used in the thread only.
        self._restarts: dict[int, float] = {}
        self._retries: dict[int, float] = {}
        self._offers_retries = False
        self._waits_since: float | None = None  # since when something submitted waits, or is decided about
        self._rolled_at: dict[str, float] = {}
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._work, name="decider", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def submit(self, jobs: Collection[int], long_tails: Collection[str] = (), place: bool = False) -> None:
        """Decide about these jobs soon. `place`: capacity may have become free, so run a scheduling pass too.

        `long_tails` are runs whose log is long enough for a segment.
        """
        if jobs or long_tails or place:
            with self._changed:
                self._jobs.update(jobs)
                self._long_tails.update(long_tails)
                self._place |= place
                if self._waits_since is None:
                    self._waits_since = time.monotonic()
                self._changed.notify()

    def stuck_s(self) -> float:
        """For how long the thread has not finished a batch, although something was submitted."""
        since = self._waits_since
        return time.monotonic() - since if since is not None else 0.0

    def _work(self) -> None:
        try:
            while (batch := self._next()) is not None:
                jobs, tails, place = batch
                try:
                    with database_connection():
                        self._decide_and_place(jobs, place)
                        self._ask_for_rolling(tails)
                except DATABASE_UNAVAILABLE as problem:
                    log.warning("Jobs %s wait for the database: %s", sorted(jobs), problem)
                    time.sleep(RETRY_S)
                except Exception:
                    log.exception(
                        "Jobs %s could not be advanced here; the sweep will find them.", sorted(jobs)
                    )
                    time.sleep(RETRY_S)
        finally:
            connection.close()

    def _next(self) -> tuple[list[int], set[str], bool] | None:
        with self._changed:
            # The batch before is over; what came meanwhile waits from now on.
            self._waits_since = time.monotonic() if self._pause() is not None else None
            while (wait := self._next_in()) != 0.0 and not self._stopping:
                self._changed.wait(wait)
            if self._stopping:
                return None
            return self._take_batch()

    def _next_in(self) -> float | None:
        """How long to wait for the next batch; None: until something is submitted. Submits what is due."""
        now = time.monotonic()
        restarts, retries = _take_due(self._restarts, now), _take_due(self._retries, now)
        self._offers_retries |= bool(retries)
        self.submit(restarts, place=bool(retries))
        pause = self._pause()
        waits = [at - now for at in (*self._restarts.values(), *self._retries.values())]
        return min([*waits, pause] if pause is not None else waits, default=None)

    def _take_batch(self) -> tuple[list[int], set[str], bool]:
        place, self._place = self._place, False
        if time.monotonic() < self._decides_at:
            return [], set(), place
        jobs = sorted(self._jobs)[:BATCH]
        self._jobs.difference_update(jobs)
        tails, self._long_tails = self._long_tails, set()
        return jobs, tails, place

    def _pause(self) -> float | None:
        """How long to wait before the next batch; None when nothing was submitted."""
        due = [self._decides_at] if self._jobs or self._long_tails else []
        due += [self._places_at] if self._place else []
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _decide_and_place(self, jobs: list[int], place: bool) -> None:
        began = time.monotonic()
        advanced = advance_quietly(jobs, Clock()) if jobs else Advanced()
        self._wake_hosts(advanced.hosts)
        self._restarts.update(_by_own_clock(advanced.restarts_at))
        self._retries.update(_by_own_clock(advanced.retries_at))
        if jobs:
            self._decides_at = _end_of_pause(began)
        if advanced.freed or place:
            began = time.monotonic()
            if self._offers_retries:
                self._offers_retries = False
                faulty_jobs.offer_again(timezone.now())
            self._wake_hosts(schedule_quietly(timezone.now()))
            self._places_at = _end_of_pause(began)

    def _wake_hosts(self, hosts: Collection[int]) -> None:
        """Wake our own links directly, and those of other dispatchers by a hint."""
        if hosts:
            hints.hosts(self._wake_links(hosts))

    def _ask_for_rolling(self, tails: set[str]) -> None:
        """Ask a worker to roll these logs: at most once in ROLL_EVERY_S for each run, not at each frame."""
        now = time.monotonic()
        due = [run for run in tails if now - self._rolled_at.get(run, -ROLL_EVERY_S) >= ROLL_EVERY_S]
        if len(self._rolled_at) > 10_000:
            self._rolled_at.clear()
        self._rolled_at.update(dict.fromkeys(due, now))
        hints.roll(due)


def _by_own_clock(moments: Mapping[int, datetime]) -> dict[int, float]:
    """When to look at these jobs again."""
    now, here = timezone.now(), time.monotonic()
    return {job: here + (at - now).total_seconds() + PAST_WAIT_S for job, at in moments.items()}


def _take_due(moments: dict[int, float], now: float) -> list[int]:
    due = [job for job, at in moments.items() if at <= now]
    for job in due:
        del moments[job]
    return due


def _end_of_pause(began: float) -> float:
    """When the pause ends that follows work since `began`: it lasts as long as the work, within a bound."""
    now = time.monotonic()
    return now + min(MAX_PAUSE_S, now - began)
