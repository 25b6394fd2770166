"""The desk of the jobs: what agents/ asks, answered from rows; what hosts tell, written down and thought about.

Hosts' threads write facts and go on. Deciding is done by one thread beside them: while it decides about some jobs,
others gather, and the next batch takes them all. So a single fact is answered at once, and a flood costs few
transactions. If this process dies in between, the jobs are marked as due and the sweep finds them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from django.db import connection
from django.utils import timezone

from agents.hosts import recovery
from agents.infra.clock import Clock
from agents.infra.database_errors import DATABASE_UNAVAILABLE
from agents.links.control_plane import Accepted, Arrival, Wanted
from jobs.host_sync import intake, lost_hosts, recovery_mode, wanted
from jobs.host_sync.apply_reports import IntakeResult, UnreadableFrames
from jobs.host_sync.fast_append import FastAppender
from jobs.lifecycle.advance import Advanced, advance_quietly
from jobs.scheduling.scheduler import schedule_quietly
from jobs.wake import announce, hints

log = logging.getLogger(__name__)

Poke = Callable[[Collection[int]], Collection[int]]

BATCH = 200
REST_S = 0.5
MAX_PAUSE_S = 0.05
ROLL_EVERY_S = 0.5


class Decider(Protocol):
    """Whoever decides about the jobs of which something was told."""

    def think(self, jobs: Collection[int], tails: Collection[str] = (), anew: bool = False) -> None: ...

    def stop(self, timeout_s: float = 10.0) -> None: ...


class JobsControlPlane:
    """Desk over the rows. `poke` reaches the links of this process, and returns the hosts of others."""

    def __init__(self, poke: Poke, thinker: Decider | None = None) -> None:
        self._tries = UnreadableFrames()
        self._appender = FastAppender()
        self._poke = poke
        self._thinker = thinker or DeciderThread(poke)

    def close(self) -> None:
        self._thinker.stop()

    def look(self, hosts: Collection[int]) -> None:
        """Somebody rang: something else is wanted on these hosts; if on none, somebody may be placed."""
        if hosts:
            self._poke(hosts)
        else:
            self._thinker.think((), anew=True)

    def wanted_runs(self, host_id: int) -> Mapping[str, Wanted]:
        with database_connection():
            found = wanted.wanted(host_id)
        self._appender.expect(
            {run: want.pull_from for run, want in found.items() if want.pull_from is not None}
        )
        return found

    def start_orders(self, runs: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        with database_connection():
            if recovery.in_recovery_mode():
                recovery_mode.mark_missing(runs, timezone.now())
                return {}
            found = wanted.orders(runs)
            missing = [run for run in runs if run not in found]
            if missing:
                self._thinker.think(lost_hosts.close_lost_runs(missing, timezone.now()))
            return found

    def store_reports(self, host_id: int, token: int, arrivals: Sequence[Arrival]) -> Accepted:
        with database_connection():
            told = self._take(host_id, token, arrivals)
        announce.send_now(f"log:{run}" for run in told.logs)
        self._thinker.think(told.jobs, told.long_tails)
        return told.taken

    def _take(self, host_id: int, token: int, arrivals: Sequence[Arrival]) -> IntakeResult:
        told, rest = IntakeResult(), arrivals
        try:
            told, rest = self._append(host_id, token, arrivals)
            if not rest:
                return told
            learnt = intake.take(host_id, token, rest, timezone.now(), self._tries)
            self._appender.learn(learnt.acks)
            return told.and_(learnt)
        except DATABASE_UNAVAILABLE:
            raise  # the database is away, or gave us up for dead: the link keeps the batch and tries again
        except Exception:
            if len(rest) == 1:
                log.exception("What a host told about %s was left out.", rest[0].run)
                return told
        # Something in it cannot be written. The rest must not suffer from that.
        for arrival in rest:
            told = told.and_(self._take(host_id, token, [arrival]))
        return told

    def _append(
        self, host_id: int, token: int, arrivals: Sequence[Arrival]
    ) -> tuple[IntakeResult, Sequence[Arrival]]:
        """The next bytes first, and told at once: nobody who reads a log waits for facts to be understood."""
        frames, rest = self._appender.sort(arrivals)
        appended = self._appender.take(host_id, token, frames) if frames else None
        if appended is None:
            return IntakeResult(), arrivals
        announce.send_now(f"log:{run}" for run in appended.logs)
        appended.logs = set()
        return appended, rest

    def host_changed(self, host_id: int) -> None:
        with database_connection():
            self._thinker.think(lost_hosts.mark_jobs_of(host_id, timezone.now()), anew=True)
        announce.send_now([f"host:{host_id}", "hosts"])


class DeciderThread:
    """The one thread of a dispatcher that decides and places, over whatever has gathered."""

    def __init__(self, poke: Poke) -> None:
        self._poke = poke
        self._jobs: set[int] = set()
        self._tails: set[str] = set()
        self._anew = False
        # After a decision, and after a placement, it rests from the same for as long as that took: half of the time is
        # left to the links, and more gathers meanwhile. Who waits for a place does not wait for a rest from facts.
        self._decides_at = self._places_at = 0.0
        self._rolled_at: dict[str, float] = {}
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._work, name="thinker", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def think(self, jobs: Collection[int], tails: Collection[str] = (), anew: bool = False) -> None:
        """Decide about these jobs soon. `anew`: room may have come; place whoever waits."""
        if jobs or tails or anew:
            with self._changed:
                self._jobs.update(jobs)
                self._tails.update(tails)
                self._anew |= anew
                self._changed.notify()

    def _work(self) -> None:
        try:
            while (batch := self._next()) is not None:
                jobs, tails, anew = batch
                try:
                    with database_connection():
                        self._decide(jobs, anew)
                        self._roll(tails)
                except DATABASE_UNAVAILABLE as problem:
                    log.warning("Jobs %s wait for the database: %s", sorted(jobs), problem)
                    time.sleep(REST_S)
                except Exception:
                    log.exception("Jobs %s could not be advanced here; the sweep finds them.", sorted(jobs))
                    time.sleep(REST_S)
        finally:
            connection.close()

    def _next(self) -> tuple[list[int], set[str], bool] | None:
        with self._changed:
            while (pause := self._pause()) != 0.0 and not self._stopping:
                self._changed.wait(pause)
            if self._stopping:
                return None
            return self._taken()

    def _taken(self) -> tuple[list[int], set[str], bool]:
        anew, self._anew = self._anew, False
        if time.monotonic() < self._decides_at:
            return [], set(), anew
        jobs = sorted(self._jobs)[:BATCH]
        self._jobs.difference_update(jobs)
        tails, self._tails = self._tails, set()
        return jobs, tails, anew

    def _pause(self) -> float | None:
        """How long nothing is to be done yet; None until somebody brings something."""
        due = [self._decides_at] if self._jobs or self._tails else []
        due += [self._places_at] if self._anew else []
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _decide(self, jobs: list[int], anew: bool) -> None:
        began = time.monotonic()
        advanced = advance_quietly(jobs, Clock()) if jobs else Advanced()
        self._tell(advanced.hosts)
        if jobs:
            self._decides_at = _after_rest(began)
        if advanced.freed or anew:
            began = time.monotonic()
            self._tell(schedule_quietly(timezone.now()))
            self._places_at = _after_rest(began)

    def _tell(self, hosts: Collection[int]) -> None:
        """Our own links directly; those of other dispatchers by message."""
        if hosts:
            hints.hosts(self._poke(hosts))

    def _roll(self, tails: set[str]) -> None:
        """Rolling is a worker's work; it is asked for once in a while, not at each frame."""
        now = time.monotonic()
        due = [run for run in tails if now - self._rolled_at.get(run, -ROLL_EVERY_S) >= ROLL_EVERY_S]
        if len(self._rolled_at) > 10_000:
            self._rolled_at.clear()
        self._rolled_at.update(dict.fromkeys(due, now))
        hints.roll(due)


def _after_rest(began: float) -> float:
    now = time.monotonic()
    return now + min(MAX_PAUSE_S, now - began)


@contextmanager
def database_connection() -> Iterator[None]:
    """A database connection for a moment. PostgreSQL's goes back to the pool; SQLite's stays with the thread."""
    try:
        yield
    finally:
        pooled = connection.vendor == "postgresql" or connection.errors_occurred
        if pooled and not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()
