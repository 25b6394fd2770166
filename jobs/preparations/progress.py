"""How far the hosts of a job are with what they prepare, as text and as numbers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import F

from agents.infra.texts import join, said
from jobs.models import Preparation
from jobs.rules.lifecycle.preparation_states import PreparationState
from jobs.rules.list_text import list_text
from jobs.rules.time_text import time_text

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


def reason_of(job: int, now: datetime) -> str:
    """Why a job waits whose hosts are being prepared; empty if it does not wait for that."""
    open_rows = [progress_of(row, now) for row in of_job(job) if row.phase != PreparationState.READY]
    return list_text([_sentence(each) for each in open_rows]) if open_rows else ""


def _sentence(each: Progress) -> str:
    if each.state is PreparationState.FAILED:
        return said("{host} could not prepare {what}", host=each.host, what=each.title)
    words = said("{host} prepares {what}", host=each.host, what=each.title)
    if each.share is None:
        return words
    percent = said("{percent} %", percent=f"{100 * each.share:.0f}")
    rest = [said("{time} left", time=time_text(each.left_s))] if each.left_s is not None else []
    return said("{words} ({numbers})", words=words, numbers=join(", ", [percent, *rest]))
