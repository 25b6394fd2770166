"""What an admin does with a host in service: cordon it, drain it, open it again, or declare it gone.

A cordoned host takes no new jobs; what runs there goes on. A drained host is cordoned, and its replicas move to other
hosts (scheduling/moves.py). Each act writes a line to the host's history, with the person and the reason. A cordon and
a drain can be taken back at any time.
"""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Greatest

from agents.hosts import data_address, gpu_quarantine, host_history
from agents.infra.clock import Clock
from agents.infra.refusals import Refused
from agents.infra.texts import moment, said
from agents.models import Gpu, Host, HostStatus
from jobs.host_sync import lost_hosts
from jobs.lifecycle import snapshot
from jobs.lifecycle.advance import advance
from jobs.lifecycle.host_maintenance import maintenance_of
from jobs.models import GpuClaim, HostMaintenance, Job, Run
from jobs.projects import audit
from jobs.rules.lifecycle.states import RunPhase
from jobs.scheduling import pass_lock
from jobs.scheduling.moves import PLACED
from jobs.wake import announce, hints

MAX_MESSAGE = 500
# Hosts that answer, or that were never connected: nothing can have been lost with them.
ANSWERS = (HostStatus.UP, HostStatus.CHECKING, HostStatus.NEW)


def cordon(host: Host, message: str, actor: str, now: datetime) -> None:
    """Close the host to new jobs. Doing it again changes the message."""
    with transaction.atomic():
        row = _locked(host)
        _write(
            row,
            cordoned=True,
            cordoned_at=maintenance_of(row).cordoned_at or now,
            cordoned_by=actor[:150],
            cordon_message=_message(message),
        )
        _audit(row, "cordon", actor, now)
        host_history.record(row.pk, "cordoned", message or said("Closed to new jobs."), actor, now)
        _announce(row)


def uncordon(host: Host, actor: str, now: datetime) -> None:
    """Open the host again. Replicas that were to leave stay; moves that have begun are completed."""
    with transaction.atomic():
        row = _locked(host)
        if not maintenance_of(row).cordoned:
            return
        _write(
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
        _audit(row, "uncordon", actor, now)
        _clear_move_reasons(row, now)
        host_history.record(row.pk, "uncordoned", said("Open to jobs again."), actor, now)
        _announce(row)


def drain(host: Host, message: str, until: datetime | None, force: bool, actor: str, now: datetime) -> None:
    """Cordon the host and let its replicas leave, as soon as there is a place elsewhere. Doing it again changes the
    deadline, the message and `force`."""
    if until is not None and until <= now:
        raise Refused("until", said("The deadline is over already. Give one that is to come, or none."))
    if force and until is None:
        raise Refused(
            "until", said("By force needs a deadline: until then replicas move as soon as there is room.")
        )
    with transaction.atomic():
        row = _locked(host)
        before = maintenance_of(row)
        begins = before.drain_at is None
        _write(
            row,
            cordoned=True,
            cordoned_at=before.cordoned_at or now,
            cordoned_by=actor[:150],
            cordon_message=_message(message),
            drain_at=before.drain_at or now,
            drain_until=until,
            drain_force=force,
            drain_runs=_count_runs(row) if begins else before.drain_runs,
            drained_at=None if begins else before.drained_at,
        )
        _audit(row, "drain", actor, now)
        text = _drain_text(message, until, force)
        host_history.record(row.pk, "draining", text, actor, now)
        hints.jobs(_mark_jobs_on(row, now))
        _announce(row)


def _drain_text(why: str, until: datetime | None, force: bool) -> str:
    if until is None:
        return why or said("To be drained.")
    why = why or said("To be drained")
    time = moment(until)
    if force:
        return said("{why} until {time}, then by force", why=why, time=time)
    return said("{why} until {time}", why=why, time=time)


def _no_namespaces(host: Host, why: str | None) -> str:
    if not why:
        return said(
            "It is not known whether {host} allows PID namespaces. Check it again first.", host=host.name
        )
    return said(
        "{host} does not allow PID namespaces: {why}. Allow them to {login} there and check it again.",
        host=host.name,
        why=why,
        login=host.user,
    )


def set_pid_namespaces(host: Host, in_namespaces: bool, actor: str, now: datetime) -> None:
    """Say whether runs that are placed there from now on get a PID namespace of their own. Other runs keep what they
    have."""
    with transaction.atomic():
        row = _locked(host)
        if in_namespaces and row.facts.get("pid_namespace") is not True:
            why = row.facts.get("pid_namespace_why")
            raise Refused("pid_namespaces", _no_namespaces(row, why))
        if row.pid_namespaces == in_namespaces:
            return
        Host.every.filter(pk__in=_rows_of(row)).update(pid_namespaces=in_namespaces)
        _audit(row, "contain", actor, now)
        text = (
            said("New runs get PID namespaces of their own.")
            if in_namespaces
            else said("New runs get no PID namespaces.")
        )
        host_history.record(row.pk, "contained", text, actor, now)
        _announce(row)


def set_data_address(host: Host, address: str, actor: str, now: datetime) -> None:
    """Choose the address at which replicas that are placed there from now on are reached; "" for the one that the
    check finds."""
    with transaction.atomic():
        row = _locked(host)
        data_address.refuse_unknown(row, address)
        if row.data_address == address:
            return
        Host.every.filter(pk__in=_rows_of(row)).update(data_address=address)
        _audit(row, "network", actor, now)
        row.data_address = address
        reached_at = data_address.address_for_data(row)
        if address:
            text = said("New runs are reached at {address} (chosen).", address=reached_at)
        else:
            text = said("New runs are reached at {address} (found by the check).", address=reached_at)
        host_history.record(row.pk, "data_address", text, actor, now)
        _announce(row)


def declare_gone(host: Host, confirmed: str, actor: str, now: datetime) -> None:
    """Give up an unreachable host by the word of a person: its runs are over and hold nothing any more.

    Nothing else frees what an unreachable host holds. A dispatcher that still has the old lease can write nothing more,
    because the lease token changes. A login that is lost while its machine answers is given up alone.
    """
    clock = Clock(now)
    with transaction.atomic():
        row = _locked(host, or_login=True)
        if confirmed.strip() != row.name:
            raise Refused("name", said("Type the name of the host, {host}, to confirm.", host=row.name))
        if row.status in ANSWERS:
            raise Refused(
                "host",
                said(
                    "{host} has not been lost: it is {status}. Drain it.",
                    host=row.name,
                    status=row.get_status_display().lower(),
                ),
            )
        _check_logins_are_lost(row)
        text = said("{person} declared {host} gone", person=actor, host=_full_name(row))
        rows = _rows_of(row)
        _hold_jobs_on(rows)
        gpus = list(_gpus_in_doubt(row))
        jobs = {job for pk in rows for job in lost_hosts.declare_lost(pk, text, now)}
        _write(row, gone_at=now, gone_by=actor[:150])
        Host.every.filter(pk__in=rows).update(
            lease_owner="", lease_until=None, lease_token=Greatest(F("lease_token") + 1, int(now.timestamp()))
        )
        gpu_quarantine.mark_unverified(
            gpus, said("{why}, and nobody knows what runs on it.", why=text), actor, now
        )
        runs = Run.objects.filter(host__in=rows, declared_lost_at=now).count()
        audit.record(
            actor,
            "host.declare_gone",
            "host",
            row.name,
            {"status": row.status, "login": row.user},
            {"runs_given_up": runs},
            now,
        )
        since = moment(row.status_since)
        host_history.record(
            row.pk,
            "declared_gone",
            said("Not heard of since {time}; {runs} runs are given up.", time=since, runs=runs),
            actor,
            now,
        )
        advance(sorted(jobs), clock)
        _announce(row)


def _gpus_in_doubt(host: Host) -> QuerySet[Gpu]:
    """The GPUs on which something may run that nobody can ask about. Those of a login: what its runs hold."""
    if host.machine_id is None:
        return host.gpus.filter(present=True)
    held = GpuClaim.objects.filter(run__host=host, released_at=None)
    return Gpu.objects.filter(pk__in=held.values("gpu"), present=True)


def _full_name(host: Host) -> str:
    return (
        host.name if host.machine_id is None else said("{login} on {host}", login=host.user, host=host.name)
    )


def _check_logins_are_lost(host: Host) -> None:
    """Raises Refused while a further login of the machine answers: then the machine is there."""
    answering = host.logins.filter(retired_at=None, status=HostStatus.UP).first()
    if answering is not None:
        raise Refused(
            "host",
            said(
                "{host} has not been lost: its login {login} answers. Drain it instead.",
                host=host.name,
                login=answering.user,
            ),
        )


def _clear_move_reasons(host: Host, now: datetime) -> None:
    """Clear why jobs on the host could not move yet: they need not leave any more."""
    ids = _mark_jobs_on(host, now)
    Job.every.filter(pk__in=ids, state__in=PLACED).exclude(reason="").update(
        reason="", version=F("version") + 1, updated_at=now
    )
    hints.jobs(ids)


def _mark_jobs_on(host: Host, now: datetime) -> set[int]:
    rows = _rows_of(host)
    _hold_jobs_on(rows)
    return {job for pk in rows for job in lost_hosts.mark_jobs_of(pk, now)}


def _hold_jobs_on(rows: list[int]) -> None:
    """Lock the jobs on all these rows in the order of their ids, as all code does. The rows are then gone through one
    by one, each with its own jobs: locked only there, the jobs would be locked in another order."""
    on_rows = Run.objects.filter(host__in=rows).exclude(phase=RunPhase.CLOSED, released_at__isnull=False)
    snapshot.hold_jobs(ids=set(on_rows.order_by().values_list("job", flat=True)))


def _count_runs(host: Host) -> int:
    return Run.objects.filter(host__in=_rows_of(host), released_at=None, held=False).count()


def _locked(host: Host, or_login: bool = False) -> Host:
    """The host's row, locked and read with its maintenance. The lock of the scheduling pass comes first: nothing is
    placed on the host meanwhile, and nobody else writes its maintenance."""
    pass_lock.lock_pass()
    row = Host.every.select_for_update(no_key=True).get(pk=host.pk)
    if row.retired_at is not None:
        raise Refused("host", said("{host} was removed.", host=row.name))
    if row.machine_id is not None and not or_login:
        raise Refused(
            "host",
            said(
                "{login} is one login of {host}. Do this with the machine itself.",
                login=row.user,
                host=row.name,
            ),
        )
    maintenance_of(row)
    return row


def _rows_of(host: Host) -> list[int]:
    """The host and its further logins: what an admin does with a machine holds for all of them."""
    return [host.pk, *host.logins.filter(retired_at=None).order_by("pk").values_list("pk", flat=True)]


def _write(host: Host, **columns: object) -> None:
    """Write to the host's maintenance, and to that of its further logins. `host` keeps what was read before."""
    for pk in _rows_of(host):
        HostMaintenance.objects.update_or_create(host_id=pk, defaults=columns)


def _audit(before: Host, verb: str, actor: str, now: datetime) -> None:
    """Write the audit entry. `before` is the host as it was; its row is read again for the values after."""
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
        "data_address": host.data_address,
    }


def _message(text: str) -> str:
    return " ".join(text.split())[:MAX_MESSAGE]


def _announce(host: Host) -> None:
    hints.schedule()
    announce.hints(["hosts", f"host:{host.pk}"])
