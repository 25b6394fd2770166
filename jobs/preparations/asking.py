"""Ask hosts for what new runs need, and hold the runs back until all hosts of their attempt have it.

The caller has inserted the runs in its transaction, and holds the locks of their jobs. Preparations are locked after
jobs and runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db.models import F

from jobs.models import Preparation, PreparationNeed, Run
from jobs.preparations import history, reasons
from jobs.preparations.need import Need
from jobs.rules.lifecycle.preparation_states import PreparationState
from jobs.rules.lifecycle.states import RunPhase

Asked = Sequence[tuple[Run, Sequence[Need]]]


def ask(asked: Asked, now: datetime) -> None:
    """Each run with what it needs. What another run of the host needed before is asked for only if it failed then."""
    wanted = {(run.host_id, need.kind, need.key): need for run, needs in asked for need in needs}
    if not wanted:
        return
    Preparation.objects.bulk_create(
        [
            Preparation(
                host_id=host,
                kind=kind,
                key=key,
                what=need.what,
                title=need.title,
                created_at=now,
                used_at=now,
            )
            for (host, kind, key), need in sorted(wanted.items(), key=lambda each: each[0])
        ],
        ignore_conflicts=True,
    )
    rows = _lock(wanted)
    ask_anew(_failed(list(rows.values())), now)
    PreparationNeed.objects.bulk_create(
        PreparationNeed(run=run, preparation=rows[run.host_id, need.kind, need.key])
        for run, needs in asked
        for need in {(need.kind, need.key): need for need in needs}.values()
    )
    hold_back({run.job_id for run, _ in asked}, now)


def ask_as(old: str, new: Run, now: datetime) -> None:
    """The next run of a replica needs on the same host what the one before it needed."""
    kept = PreparationNeed.objects.filter(run=old).values_list("preparation", flat=True)
    found = list(Preparation.objects.filter(pk__in=kept).select_for_update().order_by("pk"))
    ask_anew(_failed(found), now)
    PreparationNeed.objects.bulk_create(PreparationNeed(run=new, preparation=row) for row in found)
    hold_back({new.job_id}, now)


def not_there(run: str, now: datetime) -> None:
    """The host has refused this run, because something that it had prepared is gone: what it was believed to have is
    asked for anew. What is still there is ready at once."""
    kept = PreparationNeed.objects.filter(run=run).values_list("preparation", flat=True)
    found = Preparation.objects.filter(pk__in=kept, phase=PreparationState.READY)
    ask_anew([row.pk for row in found.select_for_update().order_by("pk")], now)


def hold_back(jobs: set[int], now: datetime) -> None:
    """Hold all runs of these jobs back that were not started yet, if one of them lacks something: a gang starts
    together."""
    new = Run.objects.filter(
        job__in=jobs, attempt=F("job__attempt"), phase=RunPhase.CREATED, held=False, stop_wanted_at=None
    )
    lacking = PreparationNeed.objects.filter(run__in=new).exclude(preparation__phase=PreparationState.READY)
    for job in set(lacking.values_list("run__job", flat=True)):
        if new.filter(job=job, preparing=False).update(preparing=True):
            history.preparing(job, lacking, now)
        reasons.note(job, now)


def _lock(wanted: dict[tuple[int, str, str], Need]) -> dict[tuple[int, str, str], Preparation]:
    """The rows, locked: none of them becomes ready before the runs that need them can be seen."""
    found = Preparation.objects.filter(
        host__in={host for host, _, _ in wanted}, key__in={key for _, _, key in wanted}
    )
    rows = found.select_for_update().order_by("pk")
    return {(row.host_id, row.kind, row.key): row for row in rows}


def _failed(rows: Sequence[Preparation]) -> list[int]:
    return [row.pk for row in rows if row.phase == PreparationState.FAILED]


def ask_anew(ids: Sequence[int], now: datetime) -> None:
    """Reports about an earlier asking are old from now on."""
    Preparation.objects.filter(pk__in=ids).update(
        phase=PreparationState.WANTED,
        asked=F("asked") + 1,
        lost=0,
        done=0,
        total=None,
        message="",
        tail="",
        fault="",
        began_at=None,
        ended_at=None,
        used_at=now,
    )
