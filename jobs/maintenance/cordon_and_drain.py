"""What an admin does with a host in service: closes it to new jobs, empties it, opens it again.

A cordoned host takes nothing new; what runs there goes on. A drained one is cordoned, and what runs there leaves
(moves.py). Each act is a row of the host's history with who and why, and may be taken back at any time.
"""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.db.models import F

from agents.hosts import gpu_quarantine, host_history
from agents.infra.clock import Clock
from agents.infra.refusals import Refused
from agents.models import Host, HostStatus
from jobs.host_sync import lost_hosts
from jobs.lifecycle.advance import advance
from jobs.lifecycle.host_maintenance import maintenance_of
from jobs.models import HostMaintenance, Job, Run
from jobs.projects import audit
from jobs.scheduling import pass_lock
from jobs.scheduling.moves import PLACED
from jobs.wake import announce, hints

MAX_MESSAGE = 500
# Hosts that answer, or were never spoken to: nothing can have been lost with them.
ANSWERS = (HostStatus.UP, HostStatus.CHECKING, HostStatus.NEW)


def cordon(host: Host, message: str, actor: str, now: datetime) -> None:
    """Nothing is placed there any more. Said again, it changes the message."""
    with transaction.atomic():
        row = _locked(host)
        _update(
            row,
            cordoned=True,
            cordoned_at=maintenance_of(row).cordoned_at or now,
            cordoned_by=actor[:150],
            cordon_message=_message(message),
        )
        _note(row, "cordon", actor, now)
        host_history.record(row.pk, "cordoned", message or "Closed to new jobs.", actor, now)
        _tell(row)


def uncordon(host: Host, actor: str, now: datetime) -> None:
    """Open again, and what still was to leave stays. Moves that have begun are completed."""
    with transaction.atomic():
        row = _locked(host)
        if not maintenance_of(row).cordoned:
            return
        _update(
            row,
            cordoned=False,
            cordoned_at=None,
            cordoned_by="",
            cordon_message="",
            drain_at=None,
            drain_until=None,
            drain_force=False,
            drain_runs=0,
            drained_at=None,
        )
        _note(row, "uncordon", actor, now)
        _stays(row, now)
        host_history.record(row.pk, "uncordoned", "Open to jobs again.", actor, now)
        _tell(row)


def drain(host: Host, message: str, until: datetime | None, force: bool, actor: str, now: datetime) -> None:
    """Its replicas are to leave, each as soon as there is a place elsewhere. Said again, it changes the terms."""
    if until is not None and until <= now:
        raise Refused("until", "The deadline is over already. Give one that is to come, or none.")
    if force and until is None:
        raise Refused(
            "until", "By force needs a deadline: until then replicas move as soon as there is room."
        )
    with transaction.atomic():
        row = _locked(host)
        before = maintenance_of(row)
        begins = before.drain_at is None
        _update(
            row,
            cordoned=True,
            cordoned_at=before.cordoned_at or now,
            cordoned_by=actor[:150],
            cordon_message=_message(message),
            drain_at=before.drain_at or now,
            drain_until=until,
            drain_force=force,
            drain_runs=_living(row) if begins else before.drain_runs,
            drained_at=None if begins else before.drained_at,
        )
        _note(row, "drain", actor, now)
        by_when = f" until {until:%Y-%m-%d %H:%M:%S %Z}{', then by force' if force else ''}" if until else ""
        host_history.record(row.pk, "draining", f"{message or 'To be emptied.'}{by_when}", actor, now)
        hints.jobs(lost_hosts.mark_jobs_of(row.pk, now))
        _tell(row)


def set_pid_namespaces(host: Host, in_namespaces: bool, actor: str, now: datetime) -> None:
    """From now on each run that is placed there gets a PID namespace of its own, or none. Others stay as they are."""
    with transaction.atomic():
        row = _locked(host)
        if in_namespaces and row.facts.get("pid_namespace") is not True:
            why = row.facts.get("pid_namespace_why")
            raise Refused(
                "pid_namespaces",
                f"{row.name} does not allow PID namespaces: {why}. Allow them to {row.user} there and check it again."
                if why
                else f"It is not known whether {row.name} allows PID namespaces. Check it again first.",
            )
        if row.pid_namespaces == in_namespaces:
            return
        Host.every.filter(pk=row.pk).update(pid_namespaces=in_namespaces)
        _note(row, "contain", actor, now)
        words = (
            "New runs get PID namespaces of their own."
            if in_namespaces
            else "New runs get no PID namespaces."
        )
        host_history.record(row.pk, "contained", words, actor, now)
        _tell(row)


def declare_gone(host: Host, confirmed: str, actor: str, now: datetime) -> None:
    """A person's word that this host, which does not answer, is lost: its runs are over and hold nothing any more.

    Nothing but this frees what a silent host holds. Whoever still speaks for it is fenced out by a new lease token.
    """
    clock = Clock(now)
    with transaction.atomic():
        row = _locked(host)
        if confirmed.strip() != row.name:
            raise Refused("name", f"Type the name of the host, {row.name}, to confirm.")
        if row.status in ANSWERS:
            raise Refused(
                "host", f"{row.name} has not been lost: it is {row.get_status_display().lower()}. Empty it."
            )
        words = f"{actor} declared {row.name} gone"
        jobs = lost_hosts.declare_lost(row.pk, words, now)
        _update(row, gone_at=now, gone_by=actor[:150])
        Host.every.filter(pk=row.pk).update(
            lease_owner="", lease_until=None, lease_token=max(row.lease_token + 1, int(now.timestamp()))
        )
        gpu_quarantine.mark_unverified(
            row.gpus.filter(present=True), f"{words}, and nobody knows what runs on it.", actor, now
        )
        runs = Run.objects.filter(host=row, declared_lost_at=now).count()
        audit.record(
            actor, "host.declare_gone", "host", row.name, {"status": row.status}, {"runs_given_up": runs}, now
        )
        since = f"{row.status_since:%Y-%m-%d %H:%M:%S %Z}"
        host_history.record(
            row.pk, "declared_gone", f"Not heard of since {since}; {runs} runs are given up.", actor, now
        )
        advance(sorted(jobs), clock)
        _tell(row)


def _stays(host: Host, now: datetime) -> None:
    """Jobs there need not leave any more, and say so no longer."""
    ids = lost_hosts.mark_jobs_of(host.pk, now)
    Job.every.filter(pk__in=ids, state__in=PLACED).exclude(reason="").update(
        reason="", version=F("version") + 1, updated_at=now
    )
    hints.jobs(ids)


def _living(host: Host) -> int:
    return Run.objects.filter(host=host, released_at=None, held=False).count()


def _locked(host: Host) -> Host:
    """The host's row, locked and read with its maintenance. The lock of the scheduling pass comes first: nothing is
    placed on the host meanwhile, and nobody else writes its maintenance."""
    pass_lock.lock_pass()
    row = Host.every.select_for_update(no_key=True).get(pk=host.pk)
    if row.retired_at is not None:
        raise Refused("host", f"{row.name} was removed.")
    maintenance_of(row)
    return row


def _update(host: Host, **columns: object) -> None:
    """Write to the host's maintenance. `host` keeps what was read before."""
    HostMaintenance.objects.update_or_create(host_id=host.pk, defaults=columns)


def _note(before: Host, verb: str, actor: str, now: datetime) -> None:
    """`before` is the row as it was; it is read again for what it is now."""
    after = Host.every.select_related("maintenance").get(pk=before.pk)
    audit.record(actor, f"host.{verb}", "host", before.name, _terms(before), _terms(after), now)


def _terms(host: Host) -> dict[str, object]:
    maintenance = maintenance_of(host)
    return {
        "cordoned": maintenance.cordoned,
        "message": maintenance.cordon_message,
        "draining": maintenance.drain_at is not None,
        "until": maintenance.drain_until.isoformat() if maintenance.drain_until else None,
        "force": maintenance.drain_force,
        "pid_namespaces": host.pid_namespaces,
    }


def _message(text: str) -> str:
    return " ".join(text.split())[:MAX_MESSAGE]


def _tell(host: Host) -> None:
    hints.schedule()
    announce.hints(["hosts", f"host:{host.pk}"])
