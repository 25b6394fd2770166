"""Labels that people give to jobs after they were submitted.

Those that came with the document never change: they are what was submitted, and Vertex has no way to change them. The
caller has checked that the person may do it, and owns the transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from agents.infra.refusals import Refused
from agents.infra.texts import said
from jobs.models import Job, JobLabel, Transition
from jobs.rules.lifecycle.history_kinds import LABELLED, HistoryKind
from jobs.rules.list_text import list_text
from jobs.rules.scheduling.order import LABEL as PRIORITY
from jobs.rules.spec.custom_job import MAX_LABELS
from jobs.rules.spec.parse import is_label
from jobs.wake import announce


def give(job: Job, labels: Mapping[str, str], actor: str, now: datetime) -> None:
    """Give a job these labels. A label that a person gave it before gets the new value."""
    for key, value in labels.items():
        _check(key, value)
    # Two people at once would both find room for the last label.
    Job.every.select_for_update(no_key=True, of=("self",)).get(pk=job.pk)
    known = {row.key: row for row in JobLabel.objects.filter(job=job)}
    changed = {key: value for key, value in labels.items() if key not in known or known[key].value != value}
    for key in changed:
        _check_given(key, known.get(key))
    if len(known.keys() | labels.keys()) > MAX_LABELS:
        raise Refused(
            "labels",
            said(
                "A job has {most} labels at most; job {id} has {number}.",
                most=MAX_LABELS,
                id=job.pk,
                number=len(known),
            ),
        )
    for key, value in changed.items():
        given = {"value": value, "added_by": actor[:150], "project_id": job.project_id}
        JobLabel.objects.update_or_create(job=job, key=key, defaults=given)
    if changed:
        named = list_text([f"{key}={value}" if value else key for key, value in sorted(changed.items())])
        _tell(job, "labelled", said("It was labelled {labels}.", labels=named), actor, now)


def take(job: Job, keys: Collection[str], actor: str, now: datetime) -> None:
    """Take these labels away from a job. A key that it does not have changes nothing."""
    Job.every.select_for_update(no_key=True, of=("self",)).get(pk=job.pk)
    rows = list(JobLabel.objects.filter(job=job, key__in=keys).order_by("key"))
    for row in rows:
        _check_given(row.key, row)
    if rows:
        JobLabel.objects.filter(pk__in=[row.pk for row in rows]).delete()
        named = list_text([row.key for row in rows])
        _tell(job, "not labelled", said("Its label {labels} was taken away.", labels=named), actor, now)


def _check(key: str, value: str) -> None:
    if not key or not is_label(key):
        raise Refused("labels", said("A key must be 1 to 64 lowercase letters, digits, _ or -."))
    if not is_label(value):
        raise Refused(f"labels.{key}", said("A value must be at most 64 lowercase letters, digits, _ or -."))
    if key == PRIORITY:
        raise Refused(
            f"labels.{key}",
            said("{key} is read when a job is submitted. Submit a copy with it.", key=PRIORITY),
        )


def _check_given(key: str, row: JobLabel | None) -> None:
    if row is not None and not row.added_by:
        raise Refused(
            f"labels.{key}",
            said(
                "The label {key} came with the job when it was submitted, and does not change. Use another key.",
                key=key,
            ),
        )


def _tell(job: Job, word: str, cause: str, actor: str, now: datetime) -> None:
    Job.every.filter(pk=job.pk).update(updated_at=now)
    Transition.objects.create(
        job=job,
        at=now,
        kind=HistoryKind.LABEL,
        subject=LABELLED,
        to_state=word,
        attempt=job.attempt,
        cause=cause,
        actor=actor[:150],
    )
    announce.hints([f"job:{job.pk}", f"jobs:{job.project.name}"])
