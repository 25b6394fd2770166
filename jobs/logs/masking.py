"""The mask of a log whose job has secrets. A job without any costs one query in a process, and then a look-up.

As long as the values are kept (jobs/secrets/of_jobs.py), they are looked for in what is read. After that, the places
are known (mask_places.py), and what nobody has looked through is masked as a whole.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import Generic, Protocol, TypeVar

from django.db.models import BooleanField, ExpressionWrapper, Q

from agents.infra.sql import Parameter, SelectStatement
from agents.runner.logs.mask_patterns import MaskPatterns, Span, blank
from jobs.logs import stored_bytes
from jobs.logs.stored_bytes import Chunk
from jobs.models import JobSecret, MaskedLog, MaskedRange, Run
from jobs.secrets import of_jobs

# How long the values of a job are held in the memory of a process.
KEEP_S = 60.0
MAX_WITH_SECRETS = 64
MAX_JOBS = 20_000

# Of each secret of a job, whether its value is kept no more.
_are_gone = SelectStatement(
    lambda: (
        JobSecret.objects.filter(job=Parameter("job"))
        .order_by()
        .annotate(gone=ExpressionWrapper(Q(sealed=None), output_field=BooleanField()))
        .values_list("gone")
    )
)


class Mask(Protocol):
    def read(self, run: Run, start: int, limit: int) -> Chunk:
        """As stored_bytes.read, with `*` for each byte of a secret."""

    def held_back(self, run: Run, stored: int) -> int:
        """How many bytes at the end cannot be read yet."""


class MaskByValues:
    """Masks what is read by looking for the values in it and around it."""

    def __init__(self, patterns: MaskPatterns) -> None:
        self.patterns = patterns

    def read(self, run: Run, start: int, limit: int) -> Chunk:
        start = max(start, 0)
        wide = self.wide_read(run, start, limit)
        if not wide.data:
            return wide
        first = max(start, wide.start)
        end = min(first + limit, wide.end)
        if wide.end - first < limit + self.patterns.reach:
            end = max(first, min(end, wide.end - self._unfinished(run, wide)))
        data = bytearray(wide.data)
        blank(data, self.patterns.spans(wide.data))
        shown = bytes(data[first - wide.start : end - wide.start])
        gaps = wide.gaps if wide.start > start else ()
        return Chunk(first, end, shown, gaps, tuple(mark for mark in wide.at if first <= mark[0] < end))

    def wide_read(self, run: Run, start: int, limit: int) -> Chunk:
        """The bytes to be read, with as many before and after them as decide what is masked."""
        reach = self.patterns.reach
        before = max(start - reach, 0)
        wide = stored_bytes.read(run, before, start - before + limit + reach)
        if wide.start <= start < wide.end:
            return wide
        # A gap, or the end, lies before `start`.
        return stored_bytes.read(run, start, limit + reach)

    def held_back(self, run: Run, stored: int) -> int:
        wide = stored_bytes.read(run, max(stored - self.patterns.reach, 0), self.patterns.reach)
        return self._unfinished(run, wide) if wide.end >= stored else 0

    def _unfinished(self, run: Run, wide: Chunk) -> int:
        """How many bytes at the end of what is stored may be the beginning of a secret, of which the rest will come."""
        size = self.patterns.unfinished(wide.data)
        if not size:
            return 0
        row = Run.objects.only("log_stored", "log_complete_at", "replica", "attempt", "number").get(pk=run.pk)
        if row.log_complete_at is not None:
            return 0
        if wide.end < row.log_stored and stored_bytes.read(run, wide.end, 1).start > wide.end:
            # The next bytes are missing for good.
            return 0
        newer = Q(attempt__gt=row.attempt) | Q(attempt=row.attempt, number__gt=row.number)
        over = Run.objects.filter(newer, replica=row.replica_id, held=False).exists()
        return 0 if over else size


class MaskByPlaces:
    """Masks the places that were found while the values were kept."""

    def read(self, run: Run, start: int, limit: int) -> Chunk:
        chunk = stored_bytes.read(run, start, limit)
        if not chunk.data:
            return chunk
        data = bytearray(chunk.data)
        blank(
            data, [(max(low - chunk.start, 0), high - chunk.start) for low, high in self._places(run, chunk)]
        )
        return Chunk(chunk.start, chunk.end, bytes(data), chunk.gaps, chunk.at)

    def held_back(self, run: Run, stored: int) -> int:
        return 0

    def _places(self, run: Run, chunk: Chunk) -> list[Span]:
        known = MaskedLog.objects.filter(run=run.pk).values_list("masked_to", flat=True).first() or 0
        rows = MaskedRange.objects.filter(run=run.pk, start__lt=chunk.end, end__gt=chunk.start).order_by(
            "start"
        )
        found = [(start, min(end, chunk.end)) for start, end in rows.values_list("start", "end")]
        return [*found, (max(known, chunk.start), chunk.end)] if known < chunk.end else found


def of_run(run_id: str) -> Mask | None:
    """How the log of this run is masked; None if its job has no secrets."""
    job = of_jobs.job_of(run_id)
    if _without.get(job):
        return None
    known = _with_secrets.get(job)
    if known is not None and time.monotonic() < known[1]:
        return known[0]
    return _look_up(job)


def _look_up(job: int) -> Mask | None:
    gone = _are_gone.column(job=job)
    if not gone:
        _without.put(job, True)
        return None
    if all(gone):
        return _keep(job, MaskByPlaces())
    values = of_jobs.values_of(job)
    # Without values, their places were stored since the query before, or nobody can read them any more.
    return _keep(job, MaskByValues(MaskPatterns(values)) if values else MaskByPlaces())


def _keep(job: int, mask: Mask) -> Mask:
    _with_secrets.put(job, (mask, time.monotonic() + KEEP_S))
    return mask


Value = TypeVar("Value")


class _Newest(Generic[Value]):
    """What is known of the jobs that were asked for last."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._known: OrderedDict[int, Value] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, job: int) -> Value | None:
        return self._known.get(job)

    def put(self, job: int, value: Value) -> None:
        with self._lock:
            self._known[job] = value
            while len(self._known) > self._size:
                self._known.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._known.clear()


# Whether a job has secrets never changes after its submit.
_without: _Newest[bool] = _Newest(MAX_JOBS)
_with_secrets: _Newest[tuple[Mask, float]] = _Newest(MAX_WITH_SECRETS)
