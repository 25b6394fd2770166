"""When runs last printed something, by the console's clock. The times come from the marks in their logs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from django.db.models import F, OuterRef, Subquery

from agents.infra import untrusted
from jobs.logs.pieces import Mark
from jobs.models import LogPiece, LogSegment, Run


def last_printed(runs: Collection[str], now: datetime) -> dict[str, datetime]:
    """The time of the last output of each run whose log has marks. Two queries, however many runs there are."""
    newest = LogPiece.objects.filter(run=OuterRef("pk")).order_by("-start").values("at")[:1]
    rows = Run.objects.filter(pk__in=runs, log_stored__gt=0).order_by()
    rows_with_marks = rows.annotate(marks=Subquery(newest)).values_list("pk", "marks", "host__clock_offset_s")
    offsets = {run: offset or 0.0 for run, _, offset in rows_with_marks}
    marks: dict[str, Sequence[Mark]] = {run: found for run, found, _ in rows_with_marks if found}
    marks.update(_rolled([run for run in offsets if run not in marks]))
    moments = {run: untrusted.timestamp(found[-1][1] - offsets[run]) for run, found in marks.items() if found}
    return {run: min(at, now) for run, at in moments.items() if at is not None}


def _rolled(runs: Collection[str]) -> dict[str, Sequence[Mark]]:
    """The marks of runs whose whole log lies in segments, from the last segment."""
    last = LogSegment.objects.filter(run__in=runs, end=F("run__log_rolled")).order_by()
    entries = dict(last.values_list("run", "index")) if runs else {}
    return {run: [mark for entry in index for mark in entry[5]] for run, index in entries.items()}
