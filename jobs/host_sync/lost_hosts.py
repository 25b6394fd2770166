"""Hosts that went, and what that means for their runs: over by the proof of a new boot or by a person's word, else
nothing but a reason to look again. Silence alone ends nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db import transaction
from django.db.models import F

from agents.links.control_plane import Fact, Gap
from jobs.host_sync import facts
from jobs.host_sync.apply_reports import (
    IntakeResult,
    PendingWrites,
    RunReports,
    UnreadableFrames,
    apply_reports,
    lock_jobs,
)
from jobs.models import Job, Run
from jobs.rules.lifecycle.states import TERMINAL, RunPhase

LOST = "The host was restarted and holds nothing of this run any more."


def close_lost_runs(asked: Sequence[str], now: datetime) -> set[int]:
    """Runs that their host once claimed and that are to be started there again: it holds nothing of them.

    Only a new boot proves that nothing of them lives either. Then they are over; their jobs are to be advanced.
    """
    gone = Run.objects.filter(pk__in=asked).exclude(phase__in=(RunPhase.CREATED, RunPhase.CLOSED))
    gone = gone.exclude(boot_id="").exclude(host__boot_id="").exclude(boot_id=F("host__boot_id"))
    found = list(gone.values_list("pk", flat=True))
    if not found:
        return set()
    with transaction.atomic():
        lock_jobs(found)
        rows = Run.objects.select_for_update(no_key=True).filter(pk__in=found).order_by("pk")
        told, store = IntakeResult(), PendingWrites(now)
        for run in rows.exclude(phase=RunPhase.CLOSED).defer("order", "log_proof"):
            missing = [Gap(run.log_stored, run.log_size, LOST)] if run.log_stored < run.log_size else []
            closed = Fact({"phase": "closed", "why": "lost", "message": LOST})
            apply_reports(run, RunReports([closed], [*missing]), False, store, told, UnreadableFrames())
        store.save()
        Job.every.filter(pk__in=told.jobs).update(due_at=now)
    return told.jobs


def declare_lost(host_id: int, words: str, now: datetime) -> set[int]:
    """A person says that this host is gone: its open runs are over. The jobs concerned are to be advanced.

    If it comes back, it is told to end them first, and what it still has of their logs is fetched. The caller holds the
    host's row.
    """
    open_runs = Run.objects.filter(host=host_id).exclude(phase=RunPhase.CLOSED)
    return close_as_lost(list(open_runs.values_list("pk", flat=True)), words, now, declared=True)


def close_as_lost(found: Sequence[str], words: str, now: datetime, declared: bool = False) -> set[int]:
    """A person says that these runs are over, and why. `declared`: their host may still have them, if it comes back."""
    lock_jobs(found)
    store, jobs = PendingWrites(now), set()
    lost = facts.read({"phase": "closed", "why": "lost", "message": words})
    rows = Run.objects.select_for_update(no_key=True).filter(pk__in=found).exclude(phase=RunPhase.CLOSED)
    for run in rows.order_by("pk").defer("order", "log_proof"):
        changed = facts.fill_facts(run, lost, now) if lost else set()
        run.declared_lost_at = now if declared else None
        store.changed.append((run, changed | {"declared_lost_at"}))
        jobs.add(run.job_id)
    store.save()
    Job.every.filter(pk__in=jobs).update(due_at=now)
    return jobs


def give_up(host_id: int, why: str, now: datetime) -> None:
    """Nobody will ask this host again: what it still had of the logs of closed runs is missing for good, and says so.

    The caller holds the host's row.
    """
    unread = Run.objects.select_for_update(no_key=True).filter(host=host_id, log_complete_at=None)
    store = PendingWrites(now)
    for run in unread.filter(phase=RunPhase.CLOSED).order_by("pk").defer("order", "log_proof"):
        rest = Gap(run.log_stored, run.log_size, why)
        apply_reports(run, RunReports(log=[rest]), False, store, IntakeResult(), UnreadableFrames())
        if run.log_complete_at is None:  # nobody will prove any more what a person gave up
            run.log_complete_at = run.prove_due_at = now
            store.changed.append((run, {"log_complete_at", "prove_due_at"}))
    store.save()


def mark_jobs_of(host_id: int, now: datetime) -> set[int]:
    """The host went, came back, or was restarted: the jobs with open runs on it are due."""
    with transaction.atomic():
        open_runs = Run.objects.filter(host=host_id).exclude(phase=RunPhase.CLOSED)
        jobs = Job.every.filter(pk__in=open_runs.values("job")).exclude(state__in=TERMINAL).order_by("pk")
        ids = set(jobs.select_for_update(no_key=True).values_list("pk", flat=True))
        Job.every.filter(pk__in=ids).update(due_at=now)
    return ids
