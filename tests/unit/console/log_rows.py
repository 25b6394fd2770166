"""Writes log bytes into the store without a host."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction
from django.utils import timezone

from jobs.models import LogGap, LogPiece, Run


@contextmanager
def undone() -> Iterator[None]:
    """Take back what is written here. For one example of a test that has many: rows that are deleted in the transaction
    of the test would stay in PostgreSQL's tables until its end, and each example would look through more of them."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


@transaction.atomic
def write(run, data, z=True, wall=None):
    """Append as the intake does: first the pieces, then the lengths in the run."""
    run = Run.objects.get(pk=run.pk)
    start, end = run.log_stored, run.log_stored + len(data)
    payload = zlib.compress(data, 1) if z else data
    marks = [[start, wall]] if wall else []
    LogPiece.objects.create(run=run, start=start, end=end, z=z, data=payload, at=marks, wall=wall)
    Run.objects.filter(pk=run.pk).update(log_stored=end, log_size=max(end, run.log_size))
    return end


@transaction.atomic
def lose(run, size, reason="the host's log was cut"):
    run = Run.objects.get(pk=run.pk)
    end = run.log_stored + size
    LogGap.objects.create(run=run, start=run.log_stored, end=end, reason=reason)
    Run.objects.filter(pk=run.pk).update(log_stored=end, log_size=max(end, run.log_size))


def complete(run, digest="sha256:" + "a" * 64):
    Run.objects.filter(pk=run.pk).update(
        phase="closed",
        closed_at=timezone.now(),
        log_complete_at=timezone.now(),
        log_digest_here=digest,
        log_digest_host=digest,
    )
