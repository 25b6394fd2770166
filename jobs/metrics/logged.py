"""Metrics in the lines that programs print: read out of the stored logs, for jobs that name some.

A worker does it, some seconds after the lines were stored: no log waits for it. `Run.metrics_read` is moved on in the
transaction that stores the points, so each line counts once, whoever reads it. What is read is what people may see:
secrets are masked.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from datetime import datetime

from django.db import transaction
from django.db.models import F, QuerySet

from agents.infra.database_errors import DATABASE_UNAVAILABLE
from jobs.logs import reader
from jobs.metrics import points
from jobs.models import MetricSeries, Run
from jobs.rules.metrics.journal import LOG, Report
from jobs.rules.metrics.log_lines import names_asked, values_in
from jobs.wake import hints

log = logging.getLogger(__name__)

AT_ONCE, READ_BYTES, SLICE_S = 50, 1 << 20, 1.0


def read_due(now: datetime, clock: Callable[[], float] = time.monotonic) -> None:
    """Read what is new in the logs of jobs that ask for it. The rest waits after SLICE_S."""
    _read_each(_unread(), now, clock)


def read_ended(jobs: Collection[int], now: datetime, clock: Callable[[], float] = time.monotonic) -> None:
    """Read now what is left in the logs of these jobs, up to SLICE_S: somebody waits for their last values."""
    if jobs:
        _read_each(_unread().filter(job__in=jobs, log_complete_at__isnull=False), now, clock)


def _unread() -> QuerySet[Run]:
    return Run.objects.filter(metrics_read__isnull=False, log_stored__gt=F("metrics_read"))


def _read_each(due: QuerySet[Run], now: datetime, clock: Callable[[], float]) -> None:
    until = clock() + SLICE_S
    # In any order: a log that fails each time must not keep others waiting.
    for run in due.defer("log_proof").order_by("?")[:AT_ONCE]:
        try:
            _read(run, now)
        except DATABASE_UNAVAILABLE:
            raise
        except Exception:
            log.exception("The log of %s cannot be looked through for metrics; it is tried again.", run.pk)
        if clock() >= until:
            return


def _read(run: Run, now: datetime) -> None:
    start = run.metrics_read or 0
    chunk = reader.read(run, start, READ_BYTES)
    end = _end_of_lines(chunk.data, is_last=run.log_complete_at is not None)
    if not end and len(chunk.data) < READ_BYTES and chunk.start == start:
        return  # the line is not whole yet
    to = chunk.start + (end or len(chunk.data))
    text = chunk.data[: to - chunk.start].decode("utf-8", "replace")
    with transaction.atomic():
        if Run.objects.filter(pk=run.pk, metrics_read=run.metrics_read).update(metrics_read=to):
            found = _reports(run, text, now)
            points.add(run.pk, found, now)
            if run.log_complete_at is not None and to >= run.log_stored:
                hints.trials([run.job_id])


def _end_of_lines(data: bytes, is_last: bool) -> int:
    return len(data) if is_last and len(data) < READ_BYTES else data.rfind(b"\n") + 1


def _reports(run: Run, text: str, now: datetime) -> dict[tuple[str, str], list[Report]]:
    """The reports in these lines. A metric that the program also reports in another way is left out."""
    known = {(row.name, row.source): row.reports for row in MetricSeries.objects.filter(run=run)}
    elsewhere = {name for name, source in known if source != LOG}
    names: Collection[str] = [name for name in names_asked(run.order.get("env")) if name not in elsewhere]
    found: dict[tuple[str, str], list[Report]] = defaultdict(list)
    # A bar of progress writes over its line with a carriage return: what it shows last counts.
    for line in text.replace("\r\n", "\n").split("\n"):
        values, step = values_in(line.rpartition("\r")[2], names)
        for name, value in values.items():
            of_series = found[name, LOG]
            counted = known.get((name, LOG), 0) + len(of_series)
            of_series.append(Report(LOG, name, counted if step is None else step, value, now.timestamp()))
    return found
