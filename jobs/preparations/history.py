"""The lines of a job's history about what its hosts prepare. In the caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db.models import F, Min, QuerySet

from agents.infra.texts import said
from jobs.models import Job, PreparationNeed, Run, Transition
from jobs.rules.lifecycle.history_kinds import PREPARED, HistoryKind
from jobs.rules.lifecycle.plan import TRAINYARD
from jobs.rules.list_text import list_text
from jobs.rules.time_text import time_text


def preparing(job: int, lacking: QuerySet[PreparationNeed], now: datetime) -> None:
    """Hosts of the job begin to prepare what its runs lack."""
    found = lacking.filter(run__job=job).order_by("preparation__title")
    titles = list(dict.fromkeys(found.values_list("preparation__title", flat=True)))
    hosts = found.order_by().values("run__host").distinct().count()
    cause = said("{number} hosts prepare {what}.", number=hosts, what=list_text(titles))
    if hosts == 1:
        cause = said("A host prepares {what}.", what=list_text(titles))
    attempt = Job.every.values_list("attempt", flat=True).get(pk=job)
    _write(job, attempt, "preparing", cause, now)


def prepared(runs: Sequence[str], now: datetime) -> None:
    """These runs, which were held back, have all that they need."""
    found = Run.objects.filter(pk__in=runs).order_by("job").values("job")
    rows = found.annotate(began_at=Min("created_at"), of_attempt=F("job__attempt"))
    for row in rows:
        took_s = round(max((now - row["began_at"]).total_seconds(), 0.0))
        cause = said("The hosts have all that the job needs, after {time}.", time=time_text(took_s))
        _write(row["job"], row["of_attempt"], "prepared", cause, now)


def _write(job: int, attempt: int, state: str, cause: str, now: datetime) -> None:
    Transition.objects.create(
        job_id=job,
        at=now,
        kind=HistoryKind.PREPARATION,
        subject=PREPARED,
        to_state=state,
        attempt=attempt,
        cause=cause,
        actor=TRAINYARD,
    )
