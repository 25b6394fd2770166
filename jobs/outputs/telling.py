"""Tells people what became of a job's outputs: lines of its history, from which notifications are made."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Sum

from agents.infra.texts import join, said
from jobs.models import HostOutputs, OutputFile, OutputStage, Transition
from jobs.outputs.uploading import to_store
from jobs.rules.lifecycle.history_kinds import OUTPUTS, HistoryKind, OutputEvent
from jobs.rules.lifecycle.plan import TRAINYARD
from jobs.rules.lifecycle.states import TERMINAL

# A host that is silent for a moment when the job ends is no news.
LATE_AFTER = timedelta(minutes=2)


def tell(row: HostOutputs, now: datetime) -> None:
    """All of the job's outputs on this host are stored; or some stay there, because they cannot be."""
    if row.stage == OutputStage.STORED:
        stored = OutputFile.objects.filter(outputs=row).exclude(stored_at=None)
        number, links = stored.count(), row.left_out.get("links", 0)
        if not number and not links:
            return
        size = stored.aggregate(Sum("size"))["size__sum"] or 0
        cause = said(
            "All outputs on host {host} are stored: files: {number}, bytes: {size}.",
            host=row.host.name,
            number=number,
            size=size,
        )
        if links:
            # Programs have their latest checkpoint by one: it is not there when they look for it elsewhere.
            left = said("Links are not stored, and went with the host's copy: {number}.", number=links)
            cause = join(" ", [cause, left])
        _write(row, OutputEvent.STORED, cause, now)
    else:
        left = to_store(row.pk).count() + sum(row.left_out.values())
        cause = said(
            "Some outputs stay on host {host}, because they cannot be stored: files: {number}.",
            host=row.host.name,
            number=left,
        )
        _write(row, OutputEvent.KEPT, cause, now)


def tell_problem(row: HostOutputs, now: datetime) -> None:
    """The job is over, and what it wrote is still on its host only: said once."""
    ended = row.job.ended_at
    if row.job.state not in TERMINAL or ended is None or now - ended < LATE_AFTER:
        return
    lines = Transition.objects.filter(job=row.job_id, kind=HistoryKind.OUTPUTS, to_state=OutputEvent.LATE)
    if lines.filter(from_state=str(row.host_id)).exists():
        return
    cause = said(
        "Outputs of the job are still on host {host}, and not stored yet: {problem}",
        host=row.host.name,
        problem=row.problem,
    )
    _write(row, OutputEvent.LATE, cause, now)


def _write(row: HostOutputs, event: OutputEvent, cause: str, now: datetime) -> None:
    Transition.objects.create(
        job_id=row.job_id,
        at=now,
        kind=HistoryKind.OUTPUTS,
        subject=OUTPUTS,
        # Which host the line is about: one line of a kind is enough for each.
        from_state=str(row.host_id)[:16],
        to_state=event,
        attempt=row.job.attempt,
        cause=cause,
        actor=TRAINYARD,
    )
