"""How far the hosts of a job are with what they prepare, and with the outputs of its earlier runs, as numbers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import F, QuerySet

from agents.infra.texts import said
from jobs.models import HostOutputs, OutputStage, Preparation, Run
from jobs.rules.lifecycle.preparation_states import PreparationState
from jobs.rules.lifecycle.states import TERMINAL, RunPhase

# With less than this done, nobody can tell how long the rest takes.
SURE_SHARE, SURE_S = 0.02, 2.0


@dataclass(frozen=True, slots=True)
class Progress:
    """`share`: from 0 to 1; None where the host does not know how much there is to do. `left_s` likewise."""

    host: str
    title: str
    state: PreparationState
    share: float | None
    left_s: float | None


def progress_of(row: Preparation, now: datetime) -> Progress:
    state = PreparationState(row.phase)
    share = min(row.done / row.total, 1.0) if row.total else None
    left_s = None
    if state is PreparationState.WORKING and share and share >= SURE_SHARE and row.began_at is not None:
        took_s = (now - row.began_at).total_seconds()
        left_s = took_s * (1 - share) / share if took_s >= SURE_S else None
    if state is PreparationState.READY:
        share = 1.0
    return Progress(row.host.name, row.title, state, share, left_s)


def of_job(job: int) -> list[Preparation]:
    """What the runs of the job's current attempt need, by host."""
    rows = Preparation.objects.filter(needs__run__job=job, needs__run__attempt=F("needs__run__job__attempt"))
    return list(rows.distinct().select_related("host").order_by("host__name", "kind", "key"))


# The problem of a host that is not filled yet, for nothing but others: so many are filled at a time (jobs/outputs).
NO_PLACE = said("files of other jobs are put on their hosts first")


def fillings(job: int) -> QuerySet[HostOutputs]:
    """The hosts on which runs wait for outputs of earlier runs."""
    waiting = Run.objects.filter(job=job, phase=RunPhase.CREATED, held=False, stop_wanted_at=None)
    rows = HostOutputs.objects.filter(
        job=job, filled_at=None, stage=OutputStage.WRITING, host__in=waiting.values("host")
    )
    return rows.exclude(job__state__in=TERMINAL).select_related("host").order_by("pk")


def progress_of_filling(row: HostOutputs) -> Progress:
    state = PreparationState.WORKING if row.fill_total else PreparationState.WANTED
    share = min(row.fill_done / row.fill_total, 1.0) if row.fill_total else None
    return Progress(row.host.name, said("the outputs of earlier runs"), state, share, None)
