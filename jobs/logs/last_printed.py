"""When runs last printed something, by the console's clock. The times come from the marks in their logs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from django.db.models import F, OuterRef, Subquery

from agents.infra import untrusted
from agents.infra.sql import Parameter, SelectStatement
from jobs.logs.pieces import Mark
from jobs.models import LogPiece, LogSegment, Run

# A list of a thousand runs is one value of these, where the ORM makes a thousand of it each time.
_printed = SelectStatement(
    lambda: (
        Run.objects.filter(pk__among=Parameter("runs"), log_stored__gt=0)
        .order_by()
        .annotate(
            marks=Subquery(LogPiece.objects.filter(run=OuterRef("pk")).order_by("-start").values("at")[:1])
        )
        .values_list("pk", "marks", "host__clock_offset_s")
    )
)
_last_segments = SelectStatement(
    lambda: (
        LogSegment.objects.filter(run__among=Parameter("runs"), end=F("run__log_rolled"))
        .order_by()
        .values_list("run", "index")
    )
)


def last_printed(runs: Collection[str], now: datetime) -> dict[str, datetime]:
    """The time of the last output of each run whose log has marks. Two queries, however many runs there are."""
    rows = _printed(runs=runs) if runs else []
    offsets = {run: offset or 0.0 for run, _, offset in rows}
    marks: dict[str, Sequence[Mark]] = {run: found for run, found, _ in rows if found}
    marks.update(_rolled([run for run in offsets if run not in marks]))
    moments = {run: untrusted.timestamp(found[-1][1] - offsets[run]) for run, found in marks.items() if found}
    return {run: min(at, now) for run, at in moments.items() if at is not None}


def _rolled(runs: Collection[str]) -> dict[str, Sequence[Mark]]:
    """The marks of runs whose whole log lies in segments, from the last segment."""
    entries = _last_segments(runs=runs) if runs else []
    return {run: [mark for entry in index for mark in entry[5]] for run, index in entries}
