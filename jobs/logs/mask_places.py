"""Finds the places of secrets in the logs of a job that is over, so that its values can be deleted.

A worker does it in slices of time, a step of a log after the other; a crash costs one step.
"""

from __future__ import annotations

import logging
import time

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from agents.infra.sql import SelectStatement
from agents.runner.logs.mask_patterns import MaskPatterns, Span, merged
from jobs.logs.masking import MaskByValues
from jobs.models import Job, JobSecret, MaskedLog, MaskedRange, Run
from jobs.rules.lifecycle.states import TERMINAL
from jobs.secrets import of_jobs

log = logging.getLogger(__name__)

BATCH = 20
SLICE_S = 2.0
STEP = 1024 * 1024
# A program that prints a secret more often gets one place for each block.
MAX_PLACES = 10_000
BLOCK = 64 * 1024


def _of_ended_jobs() -> QuerySet[JobSecret, int]:
    logs_to_come = Run.objects.filter(job=OuterRef("job")).filter(
        Q(log_complete_at=None) | ~Q(prove_due_at=None)
    )
    rows = JobSecret.objects.filter(~Exists(logs_to_come), sealed__isnull=False, job__state__in=TERMINAL)
    return rows.order_by("job").values_list("job", flat=True).distinct()[:BATCH]


_due = SelectStatement(_of_ended_jobs)


def due() -> list[int]:
    """The jobs that are over, and whose logs are here and verified, but whose values are still kept."""
    return _due.column()


def find_places(job_ids: list[int]) -> None:
    """Look through the logs of these jobs, for at most SLICE_S seconds. The others stay due."""
    deadline = time.monotonic() + SLICE_S
    for job_id in job_ids:
        try:
            if _look_through(job_id, deadline):
                of_jobs.forget([job_id])
        except Exception:
            log.exception("The logs of job %s cannot be looked through for its secrets.", job_id)
        if time.monotonic() > deadline:
            return


def _look_through(job_id: int, deadline: float) -> bool:
    """Returns whether all logs of the job are looked through."""
    mask = MaskByValues(MaskPatterns(of_jobs.values_of(job_id)))
    if Job.every.filter(pk=job_id, deleted_at__isnull=False).exists():
        return True
    for run in Run.objects.filter(job=job_id).only("id", "log_stored").order_by("pk"):
        known, _ = MaskedLog.objects.get_or_create(run=run)
        while known.masked_to < run.log_stored:
            _step(mask, run, known)
            if time.monotonic() > deadline:
                return False
    return True


def _step(mask: MaskByValues, run: Run, known: MaskedLog) -> None:
    start, size = known.masked_to, min(STEP, run.log_stored - known.masked_to)
    wide = mask.wide_read(run, start, size)
    # What lies before the bytes that were read is missing.
    end = min(wide.end, max(wide.start, start) + size)
    if end <= start:
        raise RuntimeError(f"Nothing is stored of [{start}, {start + size}) of the log of {run.pk}.")
    spans = [(low + wide.start, high + wide.start) for low, high in mask.patterns.spans(wide.data)]
    places = [(max(low, start), min(high, end)) for low, high in spans if low < end and high > start]
    if known.ranges + len(places) > MAX_PLACES:
        places = by_blocks(places)
    with transaction.atomic():
        MaskedRange.objects.bulk_create(
            [MaskedRange(run=run, start=low, end=high) for low, high in places], ignore_conflicts=True
        )
        MaskedLog.objects.filter(run=run).update(masked_to=end, ranges=F("ranges") + len(places))
    known.masked_to, known.ranges = end, known.ranges + len(places)


def by_blocks(places: list[Span]) -> list[Span]:
    """One place for all that begin in a block."""
    found: dict[int, Span] = {}
    for low, high in places:
        first, last = found.get(low // BLOCK, (low, high))
        found[low // BLOCK] = min(first, low), max(last, high)
    return merged(found.values())
