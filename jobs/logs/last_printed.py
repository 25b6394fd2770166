"""When runs last printed something, by the console's clock. The times come from the marks in their logs."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from django.db.models import F, FloatField, Func, OuterRef, Subquery

from agents.infra import untrusted
from agents.infra.sql import Parameter, SelectStatement
from jobs.models import LogPiece, LogSegment, Run


class _LastMark(Func):
    """The time of the last mark of a list. A page asks for a thousand of them: their documents are not read."""

    output_field = FloatField()
    template = "(%(expressions)s -> -1 ->> 1)::float8"

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        return super().as_sql(
            compiler, connection, template="json_extract(%(expressions)s, '$[#-1][1]')", **context
        )


# A list of a thousand runs is one value of these, where the ORM makes a thousand of it each time.
_printed = SelectStatement(
    lambda: (
        Run.objects.filter(pk__among=Parameter("runs"), log_stored__gt=0)
        .order_by()
        .annotate(
            last=Subquery(
                LogPiece.objects.filter(run=OuterRef("pk"))
                .order_by("-start")
                .values(last=_LastMark("at"))[:1]
            )
        )
        .values_list("pk", "last", "host__clock_offset_s")
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
    marks: dict[str, float] = {run: found for run, found, _ in rows if found is not None}
    marks.update(_rolled([run for run in offsets if run not in marks]))
    moments = {run: untrusted.timestamp(found - offsets[run]) for run, found in marks.items()}
    return {run: min(at, now) for run, at in moments.items() if at is not None}


def _rolled(runs: Collection[str]) -> dict[str, float]:
    """The last marks of runs whose whole log lies in segments, from the last segment."""
    entries = _last_segments(runs=runs) if runs else []
    found = {
        run: next((entry[5][-1] for entry in reversed(index) if entry[5]), None) for run, index in entries
    }
    return {run: mark[1] for run, mark in found.items() if mark is not None}
