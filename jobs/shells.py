"""On which runs there can be a shell, for how long, and the record of it. No keystroke comes by here.

Who may have one is asked at the door, when it opens and again by a timer.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db.models import Q
from django.db.models.functions import Coalesce

from jobs.lifecycle.snapshot import spec_of
from jobs.models import Run, ShellSession
from jobs.rules.lifecycle.states import TERMINAL, RunPhase
from jobs.wake import announce

# How often the process that holds a shell says so, and when silence means that it is gone.
SAY_SO = timedelta(seconds=10)
SILENT = timedelta(seconds=45)
# Of one person at once.
MAX_OPEN = 20


def why_not(run: Run) -> str | None:
    """Why there is no shell there now; None when there may be. Asks the database anew, whatever the caller holds."""
    row = Run.objects.select_related("job").defer("order", "log_proof").filter(pk=run.pk).first()
    if row is None:
        return "There is no such run."
    if not spec_of(row.job).enable_web_access:
        return "The job was submitted without enableWebAccess."
    return _over(row)


def too_many(user: User) -> str | None:
    """Each holds a connection to a host and threads of a web process."""
    open_ones = ShellSession.objects.filter(user=user, closed_at=None).count()
    return f"{MAX_OPEN} shells of yours are open already. Close one first." if open_ones >= MAX_OPEN else None


def opened(run: Run, user: User, address: str, now: datetime) -> ShellSession:
    session = ShellSession.objects.create(
        run=run, user=user, user_name=user.get_username(), address=address[:64], opened_at=now, seen_at=now
    )
    announce.hint(f"shells:{run.pk}")
    return session


def closed(session: ShellSession, reason: str, now: datetime) -> None:
    """The first reason stays."""
    if ShellSession.objects.filter(pk=session.pk, closed_at=None).update(
        closed_at=now, close_reason=reason[:200]
    ):
        announce.hint(f"shells:{session.run_id}")


def close_left(now: datetime) -> None:
    """Sessions whose web process died have nobody to say that they ended: they did when it was last heard."""
    open_ones = ShellSession.objects.filter(closed_at=None)
    left = open_ones.filter(Q(seen_at__lt=now - SILENT) | Q(seen_at=None, run__phase=RunPhase.CLOSED))
    for run in left.values_list("run", flat=True):
        announce.hint(f"shells:{run}")
    left.update(closed_at=Coalesce("seen_at", now), close_reason="The web process that held it went away.")


def still(session: ShellSession, now: datetime) -> str | None:
    """Why this shell must be closed now; None while it may stay. Asked by a timer, which is also its sign of life."""
    ShellSession.objects.filter(pk=session.pk, closed_at=None, seen_at__lt=now - SAY_SO).update(seen_at=now)
    row = ShellSession.objects.select_related("run__job").defer("run__order").get(pk=session.pk)
    if row.closed_at is not None:
        return row.close_reason or "The shell was closed."
    return _over(row.run)


def _over(run: Run) -> str | None:
    if run.phase != RunPhase.RUNNING or run.job.state in TERMINAL:
        return "The replica is not running."
    return "The replica is being stopped." if run.stop_wanted_at is not None else None
