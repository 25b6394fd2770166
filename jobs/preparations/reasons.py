"""Why a job waits whose hosts are prepared for it, or filled with what its earlier runs wrote: `Job.reason`."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.db.models import F, Q

from agents.infra.texts import join, said
from jobs.models import Job, Preparation
from jobs.preparations.progress import (
    NO_PLACE,
    Progress,
    fillings,
    of_job,
    progress_of,
    progress_of_filling,
)
from jobs.preparations.turns import turns_of
from jobs.rules.lifecycle.preparation_states import PreparationState
from jobs.rules.list_text import list_text
from jobs.rules.time_text import time_text
from jobs.wake import announce


def reason_of(job: int, now: datetime) -> str:
    """Empty if the job waits for neither."""
    rows = [row for row in of_job(job) if row.phase != PreparationState.READY]
    turns = turns_of(((row.pk, row.phase, row.done) for row in rows), job)
    sentences = [
        _waiting(row, turns[row.pk]) if row.pk in turns else _preparing(progress_of(row, now)) for row in rows
    ]
    sentences += [_filling(progress_of_filling(row), row.problem) for row in fillings(job)]
    return list_text(sentences) if sentences else ""


def note(job: int, now: datetime) -> None:
    """Write why a job waits that gets new runs. The caller holds its lock, and counts its version."""
    if reason := reason_of(job, now):
        Job.every.filter(pk=job).update(reason=reason)


def hold(job: int) -> None:
    """Lock the job. Of two that explain at the same time, the later one writes what is true then."""
    list(Job.every.select_for_update(no_key=True).filter(pk=job).values_list("pk"))


def explain(job: int, now: datetime) -> None:
    """Write how far the hosts of a job are."""
    with transaction.atomic():
        hold(job)
        reason = reason_of(job, now)
        changed = Job.every.filter(~Q(reason=reason), pk=job)
        if changed.update(reason=reason, version=F("version") + 1, updated_at=now):
            announce.hints([f"job:{job}"])


def _waiting(row: Preparation, turn: str) -> str:
    return said("{host} waits with {what}: {turn}", host=row.host.name, what=row.title, turn=turn)


def _preparing(each: Progress) -> str:
    if each.state is PreparationState.FAILED:
        return said("{host} could not prepare {what}", host=each.host, what=each.title)
    return _with_numbers(said("{host} prepares {what}", host=each.host, what=each.title), each)


def _filling(each: Progress, problem: str) -> str:
    if problem == NO_PLACE:
        return said("{host} waits with {what}: {turn}", host=each.host, what=each.title, turn=problem)
    return _with_numbers(said("{host} gets {what}", host=each.host, what=each.title), each)


def _with_numbers(words: str, each: Progress) -> str:
    if each.share is None:
        return words
    percent = said("{percent} %", percent=f"{100 * each.share:.0f}")
    rest = [said("{time} left", time=time_text(each.left_s))] if each.left_s is not None else []
    return said("{words} ({numbers})", words=words, numbers=join(", ", [percent, *rest]))
