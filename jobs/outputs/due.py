"""What the sweep does for outputs: it finds the rows that are due, and those of jobs that ended or were deleted."""

from __future__ import annotations

from datetime import datetime

from django.db.models import Exists, F, OuterRef, Q

from agents.infra.sql import Parameter, SelectStatement
from jobs.models import HostOutputs, OutputStage, Run
from jobs.outputs.moving import mover
from jobs.rules.lifecycle.states import TERMINAL, RunPhase

BATCH = 200

_open = Q(stage__in=(OutputStage.WRITING, OutputStage.ENDING))
_busy = SelectStatement(
    lambda: (
        HostOutputs.objects.filter(_open | Q(due_at__lte=Parameter("now")))
        .order_by("due_at")
        .values_list("pk", "due_at")
    )
)


def move_due(now: datetime) -> None:
    """Have the rows that are due looked at: in this process, while no other one is at it."""
    if _busy(now=now):
        _end(now)
        due = [pk for pk, due_at in _busy(now=now) if due_at is not None and due_at <= now]
        for pk in due[:BATCH]:
            mover.put(pk)


def _end(now: datetime) -> None:
    """Rows whose last run has closed are due at once, and once more when their job is over."""
    runs = Run.objects.filter(job=OuterRef("job"), host=OuterRef("host"), held=False)
    runs = runs.exclude(phase=RunPhase.CLOSED)
    closed = HostOutputs.objects.filter(~Exists(runs), stage=OutputStage.WRITING)
    # A row that is being worked on is not taken away: its worker finds out by itself, at the next look.
    ending = list(closed.exclude(filled_at=None).values_list("pk", flat=True)[:BATCH])
    HostOutputs.objects.filter(pk__in=ending, stage=OutputStage.WRITING).update(
        stage=OutputStage.ENDING, due_at=now, serial=F("serial") + 1
    )
    # Files of TensorBoard are there too: the host reads them before they go (jobs/metrics).
    unread = Run.objects.filter(
        job=OuterRef("job"), host=OuterRef("host"), metrics_proof="", forgotten_at=None
    )
    over = Q(stage=OutputStage.ENDING) & ~Q(settled_at=None) & ~Exists(unread.filter(phase=RunPhase.CLOSED))
    unfilled = Q(stage=OutputStage.WRITING, filled_at=None)
    of_ended = HostOutputs.objects.filter(over | unfilled, due_at=None, job__state__in=TERMINAL)
    # A hint may bring another worker here at the same time, whose mover has claimed the row by now.
    ended = list(of_ended.values_list("pk", flat=True)[:BATCH])
    HostOutputs.objects.filter(pk__in=ended, due_at=None).update(due_at=now)


def drop_deleted(now: datetime) -> None:
    """What hosts kept of deleted jobs goes."""
    rows = HostOutputs.objects.filter(stage=OutputStage.KEPT, dropped_at=None, due_at=None)
    kept = rows.exclude(job__deleted_at=None).values_list("pk", flat=True)
    HostOutputs.objects.filter(pk__in=list(kept[:BATCH])).update(due_at=now)
