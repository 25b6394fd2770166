"""Verify that a complete log is the host's log: compute its digest here, next to the one that the host computed.

A digest is `sha256:` over the bytes for a log of at most 8 MiB, else `blocks8m:`, SHA-256 over the SHA-256 digests of
its blocks of 8 MiB. The digests of the finished blocks are kept with the run, so that a large log is verified in steps,
by whichever worker has time, and a crash costs one step.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections import defaultdict
from collections.abc import Collection
from datetime import datetime, timedelta

from django.db import transaction

from agents.infra.sql import Parameter, SelectStatement, UpdateStatement, write_together
from jobs.logs import stored_bytes
from jobs.logs.segments import block_of
from jobs.models import LogGap, LogPiece, Run
from jobs.wake import announce

log = logging.getLogger(__name__)

BLOCK = 8 * 1024 * 1024
DIGEST = 32
SLICE_S = 2.0
SHORT = 64 * 1024
RETRY = timedelta(seconds=30)
BATCH = 200

_due = SelectStatement(
    lambda: (
        Run.objects.filter(prove_due_at__lte=Parameter("now"))
        .order_by("prove_due_at")
        .values_list("pk")[:BATCH]
    )
)


_verified = UpdateStatement(
    lambda: Run.objects.filter(pk__among=Parameter("runs")), "log_digest_here", prove_due_at=None
)


def due_for_verification(now: datetime) -> list[str]:
    """The runs whose logs are to be verified now."""
    return _due.column(now=now)


def verify_logs(run_ids: list[str], now: datetime) -> None:
    """Compare these logs with the digests of their hosts, for at most SLICE_S seconds. The others stay due."""
    deadline = time.monotonic() + SLICE_S
    verified = _end_deleted(run_ids) | _verify_short(run_ids) if run_ids else set()
    for run_id in run_ids:
        if run_id in verified:
            continue
        if time.monotonic() > deadline:
            return
        # The due time is moved first: a log that cannot be read must not block the verification of the others.
        if Run.objects.filter(pk=run_id, prove_due_at__lte=now).update(prove_due_at=now + RETRY):
            try:
                _verify(Run.objects.defer("order").get(pk=run_id), deadline, now)
            except Exception:
                log.exception("The log of %s cannot be verified; it is tried again in %s.", run_id, RETRY)


def _end_deleted(run_ids: list[str]) -> set[str]:
    """The logs of deleted jobs are gone: nothing is compared, and their hosts may forget them."""
    gone = Run.objects.filter(pk__in=run_ids, job__deleted_at__isnull=False)
    found = set(gone.values_list("pk", flat=True))
    if found:
        with transaction.atomic():
            _lock(found)
            Run.objects.filter(pk__in=found).update(log_proof=b"", prove_due_at=None)
    return found


def _lock(runs: Collection[str]) -> None:
    """Lock these runs, in the order of all code."""
    rows = Run.objects.select_for_update(no_key=True).filter(pk__in=runs).order_by("pk")
    list(rows.values_list("pk"))


def _verify_short(run_ids: list[str]) -> set[str]:
    """Verify the short logs that are still in rows, as most are, with a handful of queries for all of them, and a
    small one for each that is like no other.

    A log that this cannot do (a gap, a piece that cannot be read) is left to be verified alone.
    """
    runs = Run.objects.filter(pk__in=run_ids, log_rolled=0, log_stored__lte=SHORT, log_proof=b"")
    sizes = dict(runs.exclude(prove_due_at=None).filter(gaps=None).values_list("pk", "log_stored"))
    found = {run_id: hashlib.sha256() for run_id in sizes}
    held = dict.fromkeys(sizes, 0)
    for piece in LogPiece.objects.filter(run__in=sizes).order_by("run", "start"):
        try:
            data = block_of(piece).raw()
        except Exception:
            log.exception("A piece of the log of %s cannot be read.", piece.run_id)
            continue
        found[piece.run_id].update(data)
        held[piece.run_id] += len(data)
    verified = sorted(run_id for run_id, size in sizes.items() if held[run_id] == size)
    by_digest = defaultdict(list)
    for run_id in verified:
        by_digest[f"sha256:{found[run_id].hexdigest()}"].append(run_id)
    with transaction.atomic():
        _lock(verified)
        with write_together():
            for digest, runs_with_it in by_digest.items():
                _verified(runs=runs_with_it, log_digest_here=digest)
        announce.hints(f"log:{run_id}" for run_id in verified)
    return set(verified)


def _verify(run: Run, deadline: float, now: datetime) -> None:
    if LogGap.objects.filter(run=run).exists():
        # Bytes are missing, and the gaps list them: there is nothing to compare.
        _done(run, "")
        return
    digests = bytes(run.log_proof)
    while (position := len(digests) // DIGEST * BLOCK) < run.log_stored:
        digest = _hash(run, position, min(position + BLOCK, run.log_stored))
        if run.log_stored <= BLOCK:
            _done(run, f"sha256:{digest.hex()}")
            return
        digests += digest
        if time.monotonic() > deadline and position + BLOCK < run.log_stored:
            Run.objects.filter(pk=run.pk).update(log_proof=digests, prove_due_at=now)
            return
    whole = f"blocks8m:{hashlib.sha256(digests).hexdigest()}"
    _done(run, whole if run.log_stored else f"sha256:{hashlib.sha256().hexdigest()}")


def _hash(run: Run, start: int, end: int) -> bytes:
    found, size = hashlib.sha256(), 0
    for data in stored_bytes.stream(run, start, end):
        found.update(data)
        size += len(data)
    if size != end - start:
        raise RuntimeError(f"Of [{start}, {end}) of the log of {run.pk} only {size} bytes are stored.")
    return found.digest()


def _done(run: Run, digest: str) -> None:
    with transaction.atomic():
        Run.objects.filter(pk=run.pk).update(log_digest_here=digest, log_proof=b"", prove_due_at=None)
        announce.hint(f"log:{run.pk}")
