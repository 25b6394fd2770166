"""Shells on runs: on which runs a shell may be open, for how long, and the record of each. Keystrokes do not pass here.

The console checks whether the person may have a shell, when it opens and again by a timer.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Case, Exists, F, OuterRef, Q, QuerySet, Value, When
from django.db.models.functions import Coalesce

from agents.infra.sentences import SentenceField
from agents.infra.sql import Parameter, SelectStatement
from agents.infra.texts import Text, said
from jobs.lifecycle.snapshot import spec_of
from jobs.models import Job, RecordingState, Run, ShellSession
from jobs.projects import audit
from jobs.recordings import policy
from jobs.rules.lifecycle.states import TERMINAL, RunPhase
from jobs.wake import announce, hints

# How often the web process that holds a shell renews its record, and after how long without that it counts as dead.
HEARTBEAT = timedelta(seconds=10)
DEAD_AFTER = timedelta(seconds=45)
# How many shells one person may have open at once.
MAX_OPEN = 20
# A kept shell ends by its host's own clock. Its record is closed so long after that.
KEEP_MARGIN = timedelta(seconds=60)

_session = SelectStatement(
    lambda: (
        ShellSession.objects.filter(pk=Parameter("session"))
        .order_by()
        .values_list(
            *("closed_at", "close_wanted_at", "close_reason", "seen_at"),
            *("run__phase", "run__stop_wanted_at", "run__job__state", "run__why"),
        )
    )
)


def why_not(run: Run) -> str | None:
    """Why a shell cannot be opened on the run now; None if it can. Reads the run again from the database."""
    row = Run.objects.select_related("job").defer("order", "log_proof").filter(pk=run.pk).first()
    if row is None:
        return said("There is no such run.")
    if not spec_of(row.job).enable_web_access:
        return said("The job was submitted without enableWebAccess.")
    return _over(row.phase, row.stop_wanted_at, row.job.state, row.why)


def newest(run: Run) -> Run:
    """The run on which a new shell opens: this one, or the one that runs in its place if this one is over."""
    if run.phase != RunPhase.CLOSED:
        return run
    rows = Run.objects.filter(replica=run.replica_id, held=False, phase=RunPhase.RUNNING)
    later = rows.select_related("job__project", "host", "replica").order_by("-attempt", "-number").first()
    return later or run


def too_many(user: User) -> str | None:
    """The refusal if the person has too many shells open: each holds a connection to a host and threads of a web
    process."""
    open_ones = ShellSession.objects.filter(user=user, closed_at=None).count()
    if open_ones < MAX_OPEN:
        return None
    return said("{number} shells of yours are open already. Close one first.", number=MAX_OPEN)


def record_opened(run: Run, user: User, address: str, now: datetime, name: str = "") -> ShellSession:
    """The record of a shell that ends with its connection. `name`: how it is called on the host."""
    with transaction.atomic():
        session = ShellSession.objects.create(
            run=run,
            user=user,
            user_name=user.get_username(),
            address=address[:64],
            opened_at=now,
            seen_at=now,
            **_recording(run, name),
        )
        _audit_open(session, now)
    announce.hint(f"shells:{run.pk}")
    return session


@dataclass(frozen=True)
class Kept:
    """How a shell is kept: its name on the host, for how long after the last connection, and with which login it
    ends."""

    key: str
    keep_s: int
    login: str


def record_kept(run: Run, user: User, address: str, kept: Kept, now: datetime) -> ShellSession:
    """The record of a kept shell. A page that got no answer asks again with the same key."""
    session, is_new = ShellSession.objects.get_or_create(
        key=kept.key,
        defaults={
            "run": run,
            "user": user,
            "user_name": user.get_username(),
            "address": address[:64],
            "opened_at": now,
            "seen_at": now,
            "keep_s": kept.keep_s,
            "login": kept.login,
            **_recording(run, kept.key),
        },
    )
    if is_new:
        _audit_open(session, now)
        announce.hint(f"shells:{run.pk}")
    return session


def _recording(run: Run, name: str) -> dict[str, str]:
    """The columns of a new record that say whether the shell is recorded."""
    if not name or not policy.is_recorded(run.job.project):
        return {}
    return {"recording": name, "recording_state": RecordingState.COMING}


def record_attached(session: ShellSession, login: str, now: datetime) -> None:
    """Its host has the shell. `login`: of the owner who attached, by which the shell ends from now on; or empty."""
    rows = ShellSession.objects.filter(pk=session.pk, closed_at=None)
    rows.filter(attached_at=None).update(attached_at=now)
    rows.update(seen_at=now, **({"login": login} if login else {}))


def want_close(session: ShellSession, reason: str, now: datetime) -> None:
    """Have the host end a kept shell. The first reason stays."""
    rows = ShellSession.objects.filter(pk=session.pk, closed_at=None, close_wanted_at=None)
    if rows.update(close_wanted_at=now, close_reason=_kept(reason)):
        announce.hint(f"shells:{session.run_id}")


def _kept(reason: str) -> str:
    """A host's own words may be long."""
    return reason if isinstance(reason, Text) else reason[:200]


def share(session: ShellSession, shared: bool, actor: str, now: datetime) -> None:
    """Let colleagues watch the shell, or stop that: those who watch are told to leave."""
    rows = ShellSession.objects.filter(pk=session.pk, closed_at=None).exclude(shared=shared)
    with transaction.atomic():
        if rows.update(shared=shared):
            _audit(session, "shell.share", {"shared": shared}, now, actor)
            announce.hint(f"shells:{session.run_id}")


def is_shared(run_id: str, key: str) -> bool:
    """Whether colleagues may watch this shell now."""
    rows = ShellSession.objects.filter(run=run_id, key=key, shared=True, closed_at=None, close_wanted_at=None)
    return bool(key) and rows.exists()


def is_on_host(key: str) -> bool:
    """Whether a host has the shell with this key, as far as is known here."""
    rows = ShellSession.objects.filter(key=key, attached_at__isnull=False, closed_at=None)
    return bool(key) and rows.exists()


def kept_open() -> list[ShellSession]:
    """All kept shells that are not over, with what decides whether they may go on."""
    rows = ShellSession.objects.filter(closed_at=None, keep_s__gt=0).order_by("pk")
    related = rows.select_related("user", "run__job__project", "run__host", "run__replica")
    return list(related.defer("run__order", "run__log_proof"))


def of_job(job: Job) -> QuerySet[ShellSession]:
    """All shells of a job, those that are open first, then the newest."""
    rows = ShellSession.objects.filter(run__job=job).select_related("run__replica", "run__host")
    return rows.defer("run__order", "run__log_proof").order_by(F("closed_at").desc(nulls_first=True), "-pk")


def _audit_open(session: ShellSession, now: datetime) -> None:
    after = {"host": session.run.host.name, "address": session.address, "recorded": bool(session.recording)}
    _audit(session, "shell.open", after, now)


def _audit(session: ShellSession, what: str, after: object, now: datetime, actor: str = "") -> None:
    """A note in the audit. Its actor is who had the shell, unless somebody else did something with it."""
    run = session.run
    subject = f"{run.job_id}/{run.replica.name}"
    actor = actor or session.user_name
    audit.record(actor, what, "shell", subject, None, after, now, project=run.job.project)


def record_closed(session: ShellSession, reason: str, now: datetime) -> None:
    """Close the record. The first reason stays: that of whoever wanted it closed."""
    why = Case(
        When(close_wanted_at=None, then=Value(_kept(reason), output_field=SentenceField())),
        default=F("close_reason"),
    )
    rows = ShellSession.objects.filter(pk=session.pk, closed_at=None)
    with transaction.atomic():
        if rows.update(closed_at=now, close_reason=why):
            session.refresh_from_db(fields=["close_reason"])
            _audit(session, "shell.close", {"reason": session.close_reason}, now)
            announce.hint(f"shells:{session.run_id}")
            if session.recording:
                # The rest of the recording can be fetched now.
                hints.hosts({session.run.host_id})


def close_abandoned(now: datetime) -> None:
    """Close the records of shells whose web process died. They ended when the process last renewed the record."""
    # No join: over one, an UPDATE finds its rows by a subquery, and does not look again after it waited for a lock.
    run_closed = Exists(Run.objects.filter(pk=OuterRef("run"), phase=RunPhase.CLOSED))
    silent = Q(seen_at__lt=now - DEAD_AFTER) | Q(run_closed, seen_at=None)
    left = ShellSession.objects.filter(silent, closed_at=None, keep_s=0)
    reason = said("The web process that held it went away.")
    for session in left.select_related("run__job__project", "run__replica", "run__host"):
        if left.filter(pk=session.pk).update(closed_at=Coalesce("seen_at", now), close_reason=reason):
            _audit(session, "shell.close", {"reason": reason}, now)
            announce.hint(f"shells:{session.run_id}")


def close_unattended(now: datetime) -> None:
    """Close the records of kept shells that are over although nobody was there to see it."""
    for session in kept_open():
        if session.run.phase == RunPhase.CLOSED:
            reason = _over(RunPhase.CLOSED, None, session.run.job.state, session.run.why)
            record_closed(session, reason or "", now)
        elif (session.seen_at or session.opened_at) < now - timedelta(seconds=session.keep_s) - KEEP_MARGIN:
            record_closed(
                session, said("Nobody was there for {minutes} minutes.", minutes=session.keep_s // 60), now
            )


def why_close(session: ShellSession, now: datetime, renew: bool = True) -> str | None:
    """Why this shell must be closed now; None while it may stay open. The timer of a socket calls this; it also renews
    the record, because somebody is there."""
    found = _session(session=session.pk)
    if not found:
        return said("The shell was closed.")
    ((closed_at, close_wanted_at, close_reason, seen_at, *run),) = found
    if closed_at is not None or close_wanted_at is not None:
        return close_reason or said("The shell was closed.")
    if renew and (seen_at is None or seen_at < now - HEARTBEAT):
        ShellSession.objects.filter(pk=session.pk, closed_at=None).update(seen_at=now)
    return _over(*run)


def _over(phase: str, stop_wanted_at: datetime | None, job_state: str, why: str) -> str | None:
    if phase == RunPhase.CLOSED and why == "reboot":
        # As the host says it too (agents/runner/shells/attach.py), whoever of the two comes first.
        return said("The host was rebooted, and the shell ended with it.")
    if phase != RunPhase.RUNNING or job_state in TERMINAL:
        return said("The replica is not running.")
    return said("The replica is being stopped.") if stop_wanted_at is not None else None
