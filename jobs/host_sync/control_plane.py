"""The control plane of the jobs: it tells agents/ what should be on a host, and takes in what the host reports.

The threads of the hosts write facts and go on. Deciding is done by one thread beside them (decider.py), and another one
settles what was prepared (settler.py).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from django.utils import timezone

from agents.hosts import recovery
from agents.infra.database_errors import DATABASE_UNAVAILABLE
from agents.links.control_plane import Accepted, Arrival, PreparationName, PreparationReport, Wanted
from jobs.host_sync import intake, lost_hosts, prepared, recovery_mode, wanted
from jobs.host_sync.apply_reports import IntakeResult, UnreadableFrames
from jobs.host_sync.database_connection import database_connection
from jobs.host_sync.decider import Decider, DeciderThread, WakeLinks
from jobs.host_sync.fast_append import FastAppender
from jobs.host_sync.settler import Settler, SettlerThread
from jobs.host_sync.shipping import Shipping
from jobs.secrets import of_jobs
from jobs.wake import announce

log = logging.getLogger(__name__)


class JobsControlPlane:
    """The control plane for the links of one process, over the rows of the database."""

    def __init__(
        self,
        wake_links: WakeLinks,
        decider: Decider | None = None,
        settler: Settler | None = None,
        shipping: Shipping | None = None,
    ) -> None:
        self._unreadable = UnreadableFrames()
        self._appender = FastAppender()
        self._wake_links = wake_links
        self._decider = decider or DeciderThread(wake_links)
        self._settler = settler or SettlerThread(self._settled)
        self._shipping = shipping or Shipping(self._settler.submit)

    def close(self) -> None:
        self._shipping.close()
        self._settler.stop()
        self._decider.stop()

    def look(self, hosts: Collection[int]) -> None:
        """Handle a wake-up: something else is wanted on these hosts. Without hosts: a job may be placed."""
        if hosts:
            self._wake_links(hosts)
        else:
            self._decider.submit((), place=True)

    def wanted_runs(self, host_id: int, ordered: Collection[str] = ()) -> Mapping[str, Wanted]:
        with database_connection():
            found = wanted.wanted(host_id, ordered)
        self._shipping.update(host_id, {name for want in found.values() for name in want.prepare})
        self._appender.expect(
            {run: want.pull_from for run, want in found.items() if want.pull_from is not None}
        )
        return found

    def start_orders(self, runs: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        with database_connection(), wanted.orders_ahead(runs):
            if recovery.in_recovery_mode():
                recovery_mode.mark_missing(runs, timezone.now())
                return {}
            found = wanted.orders(runs)
            missing = [run for run in runs if run not in found]
            if missing:
                self._decider.submit(lost_hosts.close_lost_runs(missing, timezone.now()))
            return of_jobs.with_values(found)

    def preparation_orders(
        self, host_id: int, names: Sequence[PreparationName]
    ) -> Mapping[PreparationName, Mapping[str, Any]]:
        with database_connection():
            return prepared.orders(host_id, names)

    def give_up_preparations(
        self, host_id: int, token: int, names: Sequence[PreparationName]
    ) -> Collection[PreparationName]:
        with database_connection():
            if recovery.in_recovery_mode():
                return ()
            return prepared.give_up(host_id, token, names, timezone.now())

    def store_preparations(self, host_id: int, token: int, reports: Sequence[PreparationReport]) -> None:
        with database_connection():
            prepared.store(host_id, token, reports, timezone.now())
        self._settler.submit(host_id, progress=all(each.at_work for each in reports))

    def _settled(self, jobs: set[int], hosts: set[int]) -> None:
        """Runs were released or refused: decide about their jobs, and look at their hosts."""
        self._wake_links(hosts)
        self._decider.submit(jobs)

    def store_reports(self, host_id: int, token: int, arrivals: Sequence[Arrival]) -> Accepted:
        with database_connection():
            result = self._take(host_id, token, arrivals)
        announce.send_now(f"log:{run}" for run in result.logs)
        self._decider.submit(result.jobs, result.long_tails)
        return result.accepted

    def _take(self, host_id: int, token: int, arrivals: Sequence[Arrival]) -> IntakeResult:
        result, rest = IntakeResult(), arrivals
        try:
            result, rest = self._append(host_id, token, arrivals)
            if not rest:
                return result
            taken = intake.take(host_id, token, rest, timezone.now(), self._unreadable)
            self._appender.learn(taken.acks)
            return result.merged_with(taken)
        except DATABASE_UNAVAILABLE:
            # The database is unavailable or has closed our connection: the link keeps the batch and tries again.
            raise
        except Exception:
            if len(rest) == 1:
                log.exception("A report of a host about %s was left out.", rest[0].run)
                return result
        # Something in the batch cannot be written. It is tried arrival by arrival, so that the others are kept.
        for arrival in rest:
            result = result.merged_with(self._take(host_id, token, [arrival]))
        return result

    def _append(
        self, host_id: int, token: int, arrivals: Sequence[Arrival]
    ) -> tuple[IntakeResult, Sequence[Arrival]]:
        """Store the next log bytes first and announce them at once: a reader of the log does not wait for facts."""
        frames, rest = self._appender.sort(arrivals)
        appended = self._appender.take(host_id, token, frames) if frames else None
        if appended is None:
            return IntakeResult(), arrivals
        announce.send_now(f"log:{run}" for run in appended.logs)
        appended.logs = set()
        return appended, rest

    def host_changed(self, host_id: int) -> None:
        with database_connection():
            self._decider.submit(lost_hosts.mark_jobs_of(host_id, timezone.now()), place=True)
        announce.send_now([f"host:{host_id}", "hosts"])

    def stuck_s(self) -> float:
        return max(self._decider.stuck_s(), self._settler.stuck_s())
