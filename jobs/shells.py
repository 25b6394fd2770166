"""Shells on runs: on which runs a shell may be open, for how long, and the record of each. Keystrokes do not pass here.

The console checks whether the person may have a shell, when it opens and again by a timer.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Coalesce

from agents.infra.sql import Parameter, SelectStatement
from jobs.lifecycle.snapshot import spec_of
from jobs.models import Run, ShellSession
from jobs.rules.lifecycle.states import TERMINAL, RunPhase
from jobs.wake import announce

# How often the web process that holds a shell renews its record, and after how long without that it counts as dead.
HEARTBEAT = timedelta(seconds=10)
DEAD_AFTER = timedelta(seconds=45)
# How many shells one person may have open at once.
MAX_OPEN = 20

_session = SelectStatement(
    lambda: (
        ShellSession.objects.filter(pk=Parameter("session"))
        .order_by()
        .values_list(
            "closed_at", "close_reason", "seen_at", "run__phase", "run__stop_wanted_at", "run__job__state"
        )
    )
)


def why_not(run: Run) -> str | None:
    """Why a shell cannot be opened on the run now; None if it can. Reads the run again from the database."""
    row = Run.objects.select_related("job").defer("order", "log_proof").filter(pk=run.pk).first()
    if row is None:
        return "There is no such run."
    if not spec_of(row.job).enable_web_access:
        return "The job was submitted without enableWebAccess."
    return _over(row.phase, row.stop_wanted_at, row.job.state)


def too_many(user: User) -> str | None:
    """The refusal if the person has too many shells open: each holds a connection to a host and threads of a web
    process."""
    open_ones = ShellSession.objects.filter(user=user, closed_at=None).count()
    return f"{MAX_OPEN} shells of yours are open already. Close one first." if open_ones >= MAX_OPEN else None


def record_opened(run: Run, user: User, address: str, now: datetime) -> ShellSession:
    session = ShellSession.objects.create(
        run=run, user=user, user_name=user.get_username(), address=address[:64], opened_at=now, seen_at=now
    )
    announce.hint(f"shells:{run.pk}")
    return session


def record_closed(session: ShellSession, reason: str, now: datetime) -> None:
    """Close the record. The first reason stays."""
    if ShellSession.objects.filter(pk=session.pk, closed_at=None).update(
        closed_at=now, close_reason=reason[:200]
    ):
        announce.hint(f"shells:{session.run_id}")


def close_abandoned(now: datetime) -> None:
    """Close the records of shells whose web process died. They ended when the process last renewed the record."""
    # No join: over one, an UPDATE finds its rows by a subquery, and does not look again after it waited for a lock.
    run_closed = Exists(Run.objects.filter(pk=OuterRef("run"), phase=RunPhase.CLOSED))
    silent = Q(seen_at__lt=now - DEAD_AFTER) | Q(run_closed, seen_at=None)
    left = ShellSession.objects.filter(silent, closed_at=None)
    for run in left.values_list("run", flat=True):
        announce.hint(f"shells:{run}")
    left.update(closed_at=Coalesce("seen_at", now), close_reason="The web process that held it went away.")


def why_close(session: ShellSession, now: datetime) -> str | None:
    """Why this shell must be closed now; None while it may stay open. A timer calls this; it also renews the record."""
    found = _session(session=session.pk)
    if not found:
        return "The shell was closed."
    ((closed_at, close_reason, seen_at, *run),) = found
    if closed_at is not None:
        return close_reason or "The shell was closed."
    if seen_at is None or seen_at < now - HEARTBEAT:
        ShellSession.objects.filter(pk=session.pk, closed_at=None).update(seen_at=now)
    return _over(*run)


def _over(phase: str, stop_wanted_at: datetime | None, job_state: str) -> str | None:
    if phase != RunPhase.RUNNING or job_state in TERMINAL:
        return "The replica is not running."
    return "The replica is being stopped." if stop_wanted_at is not None else None
