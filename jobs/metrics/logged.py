"""Metrics in the lines that programs print: read out of the stored logs, for jobs that name some.

A worker does it, some seconds after the lines were stored: no log waits for it. `Run.metrics_read` is moved on in the
transaction that stores the points, so each line counts once, whoever reads it. What is read is what people may see:
secrets are masked. It is null when all of a log was read.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection
from datetime import datetime

from django.db import transaction
from django.db.models import F, Q, QuerySet

from agents.infra.database_errors import DATABASE_UNAVAILABLE
from agents.infra.sql import Parameter, SelectStatement, UpdateStatement
from jobs.logs import reader
from jobs.metrics import points
from jobs.models import MetricSeries, Run
from jobs.rules.metrics.journal import LOG, Report
from jobs.rules.metrics.log_lines import names_asked, values_in
from jobs.wake import hints

log = logging.getLogger(__name__)

# So many logs are looked through in turns of READ_BYTES, for SLICE_S.
AT_ONCE, READ_BYTES, SLICE_S = 50, 1 << 20, 1.0

_ended = SelectStatement(
    lambda: (
        Run.objects.filter(
            job__among=Parameter("jobs"), metrics_read__isnull=False, log_complete_at__isnull=False
        )
        .order_by()
        .values_list("pk", "metrics_read", "log_stored")
    )
)
_is_done = UpdateStatement(
    lambda: Run.objects.filter(pk=Parameter("run"), metrics_read=Parameter("read")), metrics_read=None
)


def read_due(now: datetime, clock: Callable[[], float] = time.monotonic) -> None:
    """Read what is new in the logs of jobs that ask for it. The rest waits after SLICE_S."""
    _read_in_turns(_unread(), now, clock)


def read_ended(jobs: Collection[int], now: datetime, clock: Callable[[], float] = time.monotonic) -> None:
    """Read now what is left in the logs of these jobs, up to SLICE_S: the caller waits for their last values."""
    left = []
    for run, read, stored in _ended(jobs=jobs) if jobs else ():
        if read < stored:
            left.append(run)
        else:
            # As nearly always: programs print little, or their lines were read while they ran.
            _is_done(run=run, read=read)
    if left:
        _read_in_turns(_unread().filter(pk__in=left), now, clock, is_awaited=True)


def _unread() -> QuerySet[Run]:
    """Those with new bytes, and those that are whole: they are done when they were read to their end."""
    has_new = Q(log_stored__gt=F("metrics_read")) | Q(log_complete_at__isnull=False)
    return Run.objects.filter(has_new, metrics_read__isnull=False)


def _read_in_turns(
    due: QuerySet[Run], now: datetime, clock: Callable[[], float], is_awaited: bool = False
) -> None:
    """A turn for each log, again and again: a long one keeps no other waiting, and has the rest of the time."""
    until = clock() + SLICE_S
    # In any order: a log that fails each time must not keep others waiting.
    turns = deque(due.defer("log_proof", "order").order_by("?")[:AT_ONCE])
    while turns:
        run = turns.popleft()
        try:
            if _read(run, now, is_awaited):
                turns.append(run)
        except DATABASE_UNAVAILABLE:
            raise
        except Exception:
            log.exception("The log of %s cannot be read for its metrics; it is tried again.", run.pk)
        if clock() >= until:
            return


def _read(run: Run, now: datetime, is_awaited: bool) -> bool:
    """Read on in one log. Returns whether more of it may be there. `is_awaited`: by the caller, which needs no hint."""
    before = run.metrics_read or 0
    if run.log_complete_at is not None and before >= run.log_stored:
        _store(run, "", None, now, is_awaited)
        return False
    chunk = reader.read(run, before, READ_BYTES)
    is_last = run.log_complete_at is not None and chunk.end >= run.log_stored
    end = len(chunk.data) if is_last else chunk.data.rfind(b"\n") + 1
    if not end and not is_last and _may_go_on(run, chunk, before):
        return False  # the line is not whole yet
    to = chunk.start + (end or len(chunk.data))
    text = chunk.data[: to - chunk.start].decode("utf-8", "replace")
    try:
        went_on = _store(run, text, None if is_last else to, now, is_awaited)
    except DATABASE_UNAVAILABLE:
        raise
    except Exception:
        # They would fail each time: what follows them must not wait for that.
        log.exception("Bytes %s to %s of the log of %s are left out of its metrics.", before, to, run.pk)
        went_on = _store(run, "", None if is_last else to, now, is_awaited)
    run.metrics_read = to
    return went_on and not is_last


def _may_go_on(run: Run, chunk: reader.Chunk, before: int) -> bool:
    """Whether the line that begins here may get its end. It never does before a gap."""
    if chunk.start != before or len(chunk.data) >= READ_BYTES:
        return False
    return chunk.end >= run.log_stored or not reader.read(run, chunk.end, 1).gaps


def _store(run: Run, text: str, to: int | None, now: datetime, is_awaited: bool) -> bool:
    """Store the reports of these lines. `to`: where it goes on; None at the end of the log. Returns False if another
    process was faster, or the job was deleted."""
    with transaction.atomic():
        if not Run.objects.filter(pk=run.pk, metrics_read=run.metrics_read).update(metrics_read=to):
            return False
        if text:
            points.add(run.pk, _reports(run, text, now), now)
        if to is None and not is_awaited:
            hints.trials([run.job_id])
    return True


def _reports(run: Run, text: str, now: datetime) -> dict[tuple[str, str], list[Report]]:
    """The reports in these lines. A metric that the program also reports in another way is left out."""
    names: Collection[str] = names_asked(run.order.get("env"))
    # Most lines of most logs name none of them. A letter may stand as \\u00e9 in a document.
    lines = [line for line in _lines(text) if "\\" in line or any(name in line for name in names)]
    if not lines:
        return {}
    known = {(row.name, row.source): row.reports for row in MetricSeries.objects.filter(run=run)}
    elsewhere = {name for name, source in known if source != LOG}
    names = [name for name in names if name not in elsewhere]
    found: dict[tuple[str, str], list[Report]] = defaultdict(list)
    for line in lines:
        values, step = values_in(line, names)
        for name, value in values.items():
            of_series = found[name, LOG]
            counted = known.get((name, LOG), 0) + len(of_series)
            of_series.append(Report(LOG, name, counted if step is None else step, value, now.timestamp()))
    return found


def _lines(text: str) -> list[str]:
    """A bar of progress writes over its line with a carriage return: what it shows last counts."""
    return [line.rpartition("\r")[2] for line in text.replace("\r\n", "\n").split("\n")]
