"""When runs last printed something, from the marks that their logs carry, by our clock."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from django.db.models import F, OuterRef, Subquery

from agents.infra import untrusted
from jobs.logs.pieces import Mark
from jobs.models import LogPiece, LogSegment, Run


def last_printed(runs: Collection[str], now: datetime) -> dict[str, datetime]:
    """Of those whose logs tell. Two queries, however many runs and however long their logs."""
    newest = LogPiece.objects.filter(run=OuterRef("pk")).order_by("-start").values("at")[:1]
    rows = Run.objects.filter(pk__in=runs, log_stored__gt=0).order_by()
    told = rows.annotate(marks=Subquery(newest)).values_list("pk", "marks", "host__clock_offset_s")
    offsets = {run: offset or 0.0 for run, _, offset in told}
    marks: dict[str, Sequence[Mark]] = {run: found for run, found, _ in told if found}
    marks.update(_rolled([run for run in offsets if run not in marks]))
    moments = {run: untrusted.timestamp(found[-1][1] - offsets[run]) for run, found in marks.items() if found}
    return {run: min(at, now) for run, at in moments.items() if at is not None}


def _rolled(runs: Collection[str]) -> dict[str, Sequence[Mark]]:
    """Of those whose whole log lies in files: what the last of them says."""
    last = LogSegment.objects.filter(run__in=runs, end=F("run__log_rolled")).order_by()
    entries = dict(last.values_list("run", "index")) if runs else {}
    return {run: [mark for entry in index for mark in entry[5]] for run, index in entries.items()}
