"""What happened to a job, as marks in its charts: starts, restarts, retries and ends. Many at once are one mark."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from console.presenters.metrics.metric_lines import Span
from jobs.models import Job, Transition
from jobs.rules.lifecycle.history_kinds import HistoryKind

MARKED = (
    *(HistoryKind.STATE, HistoryKind.RUN, HistoryKind.RESTART, HistoryKind.RETRY),
    *(HistoryKind.DRAIN, HistoryKind.PREEMPT, HistoryKind.CANCEL),
)
MOST_ROWS, MOST_MARKS, MOST_TEXT = 2_000, 100, 200


@dataclass(frozen=True, slots=True)
class Mark:
    """`count` lines of the history of one kind within one step; the subject and the text are those of the first."""

    at: datetime
    kind: str
    subject: str
    state: str
    attempt: int
    text: str
    count: int


def marks(job: Job, span: Span) -> tuple[Mark, ...]:
    """Return the marks within the span, the newest first if there are too many. Makes one query."""
    since, until = (datetime.fromtimestamp(at, UTC) for at in (span.start, span.end))
    rows = Transition.objects.filter(job=job, kind__in=MARKED, at__gte=since, at__lt=until)
    newest = rows.order_by("-id")[:MOST_ROWS]
    return tuple(_folded(reversed(list(newest)), span))[-MOST_MARKS:]


def _folded(rows: Iterable[Transition], span: Span) -> Iterable[Mark]:
    found: dict[tuple[str, str, int], list[Transition]] = {}
    for row in rows:
        step = int(row.at.timestamp() - span.start) // span.step
        found.setdefault((row.kind, row.to_state, step), []).append(row)
    for (kind, state, _step), of in found.items():
        first = of[0]
        yield Mark(first.at, kind, first.subject, state, first.attempt, first.cause[:MOST_TEXT], len(of))
