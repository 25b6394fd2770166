"""Runs of hosts that are lost. A run is over when a new boot of its host proves it, or when an admin declares it.

Anything else is only a reason to look at the jobs again: a host that is unreachable ends no run.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db import transaction
from django.db.models import F, Q, QuerySet

from agents.infra.refusals import Refused
from agents.infra.texts import said
from agents.links.control_plane import Fact, Gap
from agents.models import Host
from jobs.host_sync import facts
from jobs.host_sync.apply_reports import (
    IntakeResult,
    PendingWrites,
    RunReports,
    UnreadableFrames,
    apply_reports,
    lock_jobs,
)
from jobs.lifecycle import snapshot
from jobs.metrics import points
from jobs.models import Job, Run
from jobs.recordings import intake as recordings
from jobs.rules.lifecycle.states import TERMINAL, RunPhase

LOST = "The host was restarted and holds nothing of this run any more."


def close_lost_runs(asked: Sequence[str], now: datetime) -> set[int]:
    """Close those of these runs whose host was restarted. Returns their jobs, which are to be advanced.

    The host once claimed these runs and now asks for their start orders: it holds nothing of them. Only a new boot
    proves that no process of them lives.
    """
    gone = Run.objects.filter(pk__in=asked).exclude(phase=RunPhase.CREATED)
    gone = gone.exclude(boot_id="").exclude(host__boot_id="").exclude(boot_id=F("host__boot_id"))
    recordings.give_up(gone)
    points.give_up(gone)
    found = list(gone.exclude(phase=RunPhase.CLOSED).values_list("pk", flat=True))
    if not found:
        return set()
    with transaction.atomic():
        lock_jobs(found)
        rows = Run.objects.select_for_update(no_key=True).filter(pk__in=found).order_by("pk")
        result, writes = IntakeResult(), PendingWrites(now)
        for run in rows.exclude(phase=RunPhase.CLOSED).defer("order", "log_proof"):
            missing = [Gap(run.log_stored, run.log_size, LOST)] if run.log_stored < run.log_size else []
            closed = Fact({"phase": "closed", "why": "lost", "message": LOST})
            apply_reports(run, RunReports([closed], [*missing]), False, writes, result, UnreadableFrames())
        writes.save()
        Job.every.filter(pk__in=result.jobs).update(due_at=now)
    return result.jobs


def declare_lost(host_id: int, why: str, now: datetime) -> set[int]:
    """Close the open runs of a host that an admin declares gone. Returns their jobs, which are to be advanced.

    If the host comes back, it is ordered to end them first, and what it still has of their logs is fetched. The caller
    holds the locks of the host's row and of all jobs that have something there, so no run begins or ends meanwhile.
    """
    jobs = _close(Run.objects.filter(host=host_id), why, now, declared=True)
    return jobs | _give_up_waiting_restarts(host_id, why, now)


def _give_up_waiting_restarts(host_id: int, why: str, now: datetime) -> set[int]:
    """A replica whose restart here waits (rules/lifecycle/retry_waits.py) must start elsewhere. Its last run is closed
    by the host's own word, so there is nothing to prove."""
    closed = Run.objects.filter(host=host_id, phase=RunPhase.CLOSED, released_at=None)
    waiting = closed.exclude(restart_at=None)
    jobs = set(waiting.values_list("job", flat=True))
    snapshot.lock_runs(ids=list(waiting.values_list("pk", flat=True)))
    waiting.update(declared_lost_at=now, proved_at=now, message=why)
    Job.every.filter(pk__in=jobs).update(due_at=now)
    return jobs


def close_as_lost(run_ids: Sequence[str], why: str, now: datetime) -> set[int]:
    """Close runs because an admin says that they are over. Returns their jobs, which are to be advanced."""
    lock_jobs(run_ids)
    return _close(Run.objects.filter(pk__in=run_ids), why, now)


def _close(runs: QuerySet[Run], why: str, now: datetime, declared: bool = False) -> set[int]:
    """Close those that are open. `declared`: the host may come back and still have them."""
    writes, jobs = PendingWrites(now), set()
    lost = facts.read_facts({"phase": "closed", "why": "lost", "message": why})
    rows = runs.exclude(phase=RunPhase.CLOSED).select_for_update(no_key=True)
    for run in rows.order_by("pk").defer("order", "log_proof"):
        changed = facts.fill_facts(run, lost, now) if lost else set()
        run.declared_lost_at = now if declared else None
        writes.changed.append((run, changed | {"declared_lost_at"}))
        jobs.add(run.job_id)
    writes.save()
    Job.every.filter(pk__in=jobs).update(due_at=now)
    return jobs


def refuse_unfetched(hosts: Sequence[Host], field: str) -> None:
    """Raise Refused while these hosts still have something that is not here: it would be lost."""
    runs = Run.objects.filter(host__in=hosts)
    closed = runs.filter(phase=RunPhase.CLOSED, job__deleted_at=None)
    if closed.filter(log_complete_at=None).exists():
        raise Refused(
            field, said("The host still has log bytes that are not here yet. Try again in a moment.")
        )
    if closed.filter(metrics_proof="", forgotten_at=None).exists():
        raise Refused(field, said("The host still has metrics that are not here yet. Try again in a moment."))
    if recordings.unfetched(runs).exists():
        why = said("The host still has recordings of shells that are not here yet. Try again in a moment.")
        raise Refused(field, why)


def give_up(host_id: int, why: str, now: datetime) -> None:
    """Record gaps for what a host still has of the logs of closed runs, and end the recordings of their shells: it will
    not be asked again.

    The caller holds the lock of the host's row.
    """
    closed = Run.objects.filter(host=host_id, phase=RunPhase.CLOSED)
    wanting = closed.filter(Q(log_complete_at=None) | Q(metrics_proof=""))
    snapshot.lock_runs(ids=list(wanting.values_list("pk", flat=True)))
    writes = PendingWrites(now)
    for run in closed.filter(log_complete_at=None).order_by("pk").defer("order", "log_proof"):
        rest = Gap(run.log_stored, run.log_size, why)
        apply_reports(run, RunReports(log=[rest]), False, writes, IntakeResult(), UnreadableFrames())
        # No host will prove a run closed that an admin declared lost, so its log is complete as it is.
        if run.log_complete_at is None:
            run.log_complete_at = run.prove_due_at = now
            writes.changed.append((run, {"log_complete_at", "prove_due_at"}))
    writes.save()
    recordings.give_up(Run.objects.filter(host=host_id))
    points.give_up(closed)


def mark_jobs_of(host_id: int, now: datetime) -> set[int]:
    """Make the jobs with open runs on this host due: it went, came back or was restarted."""
    with transaction.atomic():
        open_runs = Run.objects.filter(host=host_id).exclude(phase=RunPhase.CLOSED)
        jobs = Job.every.filter(pk__in=open_runs.values("job")).exclude(state__in=TERMINAL).order_by("pk")
        ids = set(jobs.select_for_update(no_key=True).values_list("pk", flat=True))
        Job.every.filter(pk__in=ids).update(due_at=now)
    return ids
