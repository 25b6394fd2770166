"""What the hosts of one job are preparing for it, for people: each host and thing, and how far it is.

A preparation may be shared by many jobs. It is shown for a job as long as runs of the job wait for it, and after that
if it failed and the job's runs were refused because of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import F, Q, QuerySet
from django.db.models.functions import Right

from agents.infra.sql import Parameter, PartialModel, SelectStatement
from agents.models import Host
from jobs.models import HostOutputs, Job, Preparation, PreparationNeed
from jobs.preparations.progress import Progress, fillings, progress_of, progress_of_filling
from jobs.preparations.turns import turns_of
from jobs.rules.lifecycle.preparation_states import HOST_NOT_PREPARED, NOT_PREPARED, PreparationState
from jobs.rules.lifecycle.states import RunPhase

OUTPUTS = "outputs"
_WAITS = Q(run__preparing=True, run__phase=RunPhase.CREATED, run__stop_wanted_at__isnull=True)
_REFUSED = Q(run__refusal__in=(NOT_PREPARED, HOST_NOT_PREPARED), preparation__phase=PreparationState.FAILED)


@dataclass(frozen=True, slots=True)
class HostPreparation:
    """One thing on one host. `kind`: of preparations (kinds.py), or outputs of earlier runs that are put there.

    `message` and `tail` are the words of the program that prepares; the secrets that it was given are masked in them.
    `turn`: what goes first, where its files wait for others.
    """

    id: str
    progress: Progress
    kind: str
    done: int
    total: int | None
    unit: str
    message: str
    tail: str
    fault: str
    began_at: datetime | None
    ended_at: datetime | None
    turn: str = ""


def of_job(job: Job, now: datetime) -> tuple[HostPreparation, ...]:
    """What failed comes first, then what is least far, then what is ready. Empty if there is only what is ready.

    Makes two queries, however many hosts there are, and up to three more where files are waited for.
    """
    prepared = [_with_host(*row) for row in _prepared(job=job.pk)]
    turns = turns_of(((row.pk, row.phase, row.done) for row in prepared), job.pk)
    found = [_of_row(row, now, turns.get(row.pk, "")) for row in prepared]
    found += [_of_filling(row) for row in fillings(job.pk)]
    if all(each.progress.state is PreparationState.READY for each in found):
        return ()
    return tuple(sorted(found, key=_order))


def stamp(job: int) -> Sequence[Any]:
    """It changes whenever something of this does. Makes as many queries as `of_job`."""
    columns = ("pk", "phase", "done", "asked", "total", "message", "end", "ended_at")
    prepared = list(_preparations(job).annotate(end=Right("tail", 80)).values_list(*columns))
    turns = turns_of((row[:3] for row in prepared), job)
    filled = fillings(job).values_list("pk", "fill_done", "fill_total", "problem")
    return [prepared, list(filled), sorted(turns.items())]


def _preparations(job: int | Parameter) -> QuerySet[Preparation]:
    needs = PreparationNeed.objects.filter(
        _WAITS | _REFUSED, run__job=job, run__attempt=F("run__job__attempt")
    )
    return Preparation.objects.filter(pk__in=needs.values("preparation")).order_by("pk")


# Every page of a job asks for them, and mostly there are none.
_PREPARATION, _HOST = (
    PartialModel(Preparation, without=("what", "result")),
    PartialModel(Host, only=("id", "name")),
)
_prepared = SelectStatement(
    lambda: _preparations(Parameter("job")).values_list("host__name", *_PREPARATION.names)
)


def _with_host(name: str, *columns: Any) -> Preparation:
    row = _PREPARATION.build(columns)
    row.host = _HOST.build((row.host_id, name))
    return row


def _of_row(row: Preparation, now: datetime, turn: str) -> HostPreparation:
    return HostPreparation(
        str(row.pk),
        progress_of(row, now),
        row.kind,
        row.done,
        row.total,
        row.unit,
        row.message,
        row.tail,
        row.fault,
        row.began_at,
        row.ended_at,
        turn,
    )


def _of_filling(row: HostOutputs) -> HostPreparation:
    progress, total = progress_of_filling(row), row.fill_total or None
    return HostPreparation(
        f"outputs-{row.pk}", progress, OUTPUTS, row.fill_done, total, "bytes", row.problem, "", "", None, None
    )


_FIRST = (PreparationState.FAILED, PreparationState.WANTED, PreparationState.WORKING, PreparationState.READY)


def _order(each: HostPreparation) -> tuple[int, float, str, str]:
    progress = each.progress
    return _FIRST.index(progress.state), progress.share or 0.0, progress.host, each.kind
