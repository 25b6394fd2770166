"""Sets Trainyard's time right at once, by order of an admin: to the database's clock (with SQLite, the machine's).

Trainyard's time comes back to that clock by itself, by half a percent. That is slow if a clock was wrong by days when
the time was taken from it. A step has to be taken with care:

- Forward, also while Trainyard runs: what is due by then is due at once. No job's outcome changes: from the step on the
  earlier time is not trusted (`unsure_since`), and hosts tell by their monotonic clocks how long their runs have run.
- Back, only while nothing runs: a running process would see leases and due times in the future, and wait for them. All
  that lies in the future then is brought to the new time.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import F, QuerySet

from agents import clock_keeper, time_doubt
from agents.clock_keeper import JUMP_S, moment
from agents.infra import clock
from agents.infra.refusals import Refused, Unavailable
from agents.infra.texts import said
from agents.models import ClockJump, Dispatcher, Host, HostEvent, MachineClock
from jobs.models import (
    Blob,
    GpuHour,
    Job,
    LocationHour,
    Notification,
    NotificationTarget,
    Reservation,
    Run,
    ShellSession,
    StoredObject,
    Tick,
    Upload,
)
from jobs.projects import audit
from jobs.rules.lifecycle.states import TERMINAL, RunPhase

# A process that was seen so lately may run.
SEEN_LATELY = timedelta(seconds=30)
# No reservation of the storage lasts longer.
RESERVED = timedelta(days=7)
# Rows that are deleted by their age, and the times that say how old they are, with those that are shown beside them. A
# rule about ages that is new belongs here (jobs/sweep.py and jobs/artifacts ask `time_doubt.why` before they delete).
AGED: tuple[tuple[QuerySet[Any], tuple[str, ...]], ...] = (
    (StoredObject.objects.all(), ("created_at", "updated_at")),
    (Upload.objects.all(), ("created_at",)),
    (ShellSession.objects.all(), ("opened_at", "seen_at", "closed_at")),
    (Notification.objects.all(), ("made_at",)),
    (HostEvent.objects.all(), ("at",)),
    (ClockJump.objects.all(), ("at",)),
)


@dataclass(frozen=True, slots=True)
class Clocks:
    """What the clocks show at one moment. With SQLite the database has no clock, and the machine's counts for it."""

    trainyard: datetime
    database: datetime
    machine: datetime
    database_has_one: bool

    @property
    def ahead_s(self) -> float:
        """By how much Trainyard's time is ahead of the clock to which it can be set."""
        return (self.trainyard - self.database).total_seconds()


def read() -> Clocks:
    shown = clock_keeper.read_clocks()
    if shown is None:
        raise Unavailable(said("The database took too long to tell its time. Try again."))
    now = clock.now() - timedelta(seconds=clock.elapsed() - shown.elapsed)
    own = connection.vendor == "postgresql"
    return Clocks(now, moment(shown.database), moment(shown.machine), own)


def running(now: datetime) -> list[str]:
    """The processes that were seen lately on any machine, and would be misled by a step back."""
    dispatchers = Dispatcher.objects.filter(seen_at__gte=now - SEEN_LATELY).order_by("name")
    found = [f"dispatcher {name}" for name in dispatchers.values_list("name", flat=True)]
    if Tick.objects.filter(name="sweep", at__gte=now - SEEN_LATELY).exists():
        found.append("a worker")
    return found


def set_right(actor: str) -> float:
    """Set Trainyard's time to the database's clock. Returns by how many seconds it was moved; back is negative."""
    clocks = read()
    step_s = -clocks.ahead_s
    if abs(step_s) < JUMP_S:
        why = said(
            "Trainyard's time differs by {seconds} s only: nothing to set.", seconds=f"{abs(step_s):.1f}"
        )
        raise Refused("clock", why)
    with transaction.atomic():
        rows = list(MachineClock.objects.select_for_update())
        if step_s > 0:
            _step_forward(rows, step_s, clocks.database)
        else:
            _refuse_while_running(clocks)
            MachineClock.objects.all().delete()
            _bring_back(clocks.database)
        audit.record(
            actor,
            "clock.set",
            "clock",
            time_doubt.OWN,
            clocks.trainyard.isoformat(),
            clocks.database.isoformat(),
            clocks.database,
        )
        ClockJump.objects.create(at=clocks.database, clock=time_doubt.OWN, seconds=step_s)
    clock_keeper.ClockKeeper().look()
    return step_s


def _step_forward(rows: list[MachineClock], step_s: float, now: datetime) -> None:
    """The processes of each machine follow its row within seconds.

    What was written since the time was taken from a wrong clock has the age that it has: it ends no sooner.
    """
    newest = max(rows, key=lambda row: row.noted_at, default=None)
    step = timedelta(seconds=step_s)
    if newest is not None:
        for aged, columns in AGED:
            for column in columns:
                young = aged.filter(**{f"{column}__gte": newest.unsure_since})
                young.update(**{column: F(column) + step})
    # They were compared with the time from before the step.
    Host.every.update(clock_offset_s=F("clock_offset_s") - step_s)
    for row in rows:
        MachineClock.objects.filter(pk=row.pk).update(
            offset_s=row.offset_s + step_s,
            database_s=row.database_s + step_s,
            machine_s=row.machine_s + step_s,
            noted_at=row.noted_at + step,
            unsure_since=now,
        )


def _refuse_while_running(clocks: Clocks) -> None:
    seen = running(clocks.trainyard)
    if seen:
        raise Refused(
            "clock",
            said(
                "Trainyard's time is ahead by {length}. It can be set back only while nothing runs: leases and due "
                "times would lie in the future, and jobs would wait for them. Seen in the last half minute: "
                "{processes}. Stop Trainyard on all machines, wait half a minute, and repeat it. Jobs on hosts run on "
                "meanwhile. Without that it comes back by itself, 18 s an hour.",
                length=timedelta(seconds=round(clocks.ahead_s)),
                processes=", ".join(seen),
            ),
        )


def _bring_back(now: datetime) -> None:
    """What lies in the future is now: it is looked at again as soon as Trainyard is started."""
    jobs = Job.every.exclude(state__in=TERMINAL)
    runs = Run.objects.exclude(phase=RunPhase.CLOSED)
    future: tuple[tuple[QuerySet[Any], tuple[str, ...]], ...] = (
        # No decision is dated before `updated_at`: a job would be over its limit at once.
        (
            jobs,
            ("due_at", "created_at", "queued_at", "started_at", "updated_at", "rests_until", "quota_since"),
        ),
        (runs, ("restart_at", "sampled_at", "active_at", "gpu_active_at", "created_at")),
        (Run.objects.all(), ("prove_due_at",)),
        (Host.every.all(), ("seen_at", "due_at", "lease_until", "closed_until", "status_since")),
        (Tick.objects.all(), ("at",)),
        (Notification.objects.all(), ("due_at",)),
        (NotificationTarget.objects.all(), ("paused_until",)),
        (Dispatcher.objects.all(), ("seen_at",)),
        # Nothing would end by its age, no file that nothing needs would be removed, and the time would be in doubt.
        *AGED,
        (Blob.objects.all(), ("touched_at",)),
    )
    for rows, columns in future:
        for column in columns:
            rows.filter(**{f"{column}__gt": now}).update(**{column: now})
    # Sums of hours that are still to come.
    GpuHour.objects.filter(start__gt=now).delete()
    LocationHour.objects.filter(start__gt=now).delete()
    # The process that has reserved it does not run any more, or goes on and reserves it again.
    Reservation.objects.filter(until__gt=now + RESERVED).update(until=now + RESERVED)
    # How a host's monotonic clock compares was measured with the wrong time: it is measured again at the next greeting.
    Host.every.update(monotonic_at=None, monotonic_offset_s=None)
