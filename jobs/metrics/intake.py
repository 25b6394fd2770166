"""Take in what hosts send of the journals of metrics. The caller holds the lock of the run's row.

A piece is stored when it begins where the stored bytes end, so that one that comes twice changes nothing. Its bytes are
not kept: each line is hashed with the hash of those before it, and the last hash is compared with the host's.
"""

from __future__ import annotations

import logging
import zlib
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

from agents.links.control_plane import MetricsEnd, MetricsPiece
from jobs.metrics import points
from jobs.models import MetricsProof, Run
from jobs.rules.lifecycle.states import RunPhase
from jobs.rules.metrics.journal import Report, chained, parse

log = logging.getLogger(__name__)

# A runner writes at most 24 MiB, and some lines. What is longer was written by somebody else.
MAX_BYTES = 40 << 20


def take(run: Run, reports: Sequence[MetricsPiece | MetricsEnd], now: datetime) -> set[str]:
    """Returns the columns of the run that have changed."""
    changed: set[str] = set()
    for report in reports:
        if run.metrics_proof:
            return changed
        changed |= _append(run, report, now) if isinstance(report, MetricsPiece) else _end(run, report)
    return changed


def nothing_reported(run: Run) -> set[str]:
    """Its host says with the end of the run that its program has reported nothing."""
    if run.phase != RunPhase.CLOSED or run.metrics_proof or run.metrics_stored:
        return set()
    run.metrics_proof = MetricsProof.NONE
    return {"metrics_proof"}


def _append(run: Run, piece: MetricsPiece, now: datetime) -> set[str]:
    if piece.start != run.metrics_stored:
        return set()
    data = _raw(piece)
    if piece.end > MAX_BYTES or len(data) != piece.end - piece.start or not data.endswith(b"\n"):
        log.warning("What the host sent of the metrics of %s cannot be read. Its rest is left out.", run.pk)
        run.metrics_proof = MetricsProof.CUT
        return {"metrics_proof"}
    lines = data.splitlines(keepends=True)
    by_series: dict[tuple[str, str], list[Report]] = defaultdict(list)
    for report in filter(None, map(parse, lines)):
        by_series[report.name, report.source].append(report)
    points.add(run.pk, by_series, now)
    run.metrics_stored, run.metrics_chain = piece.end, chained(run.metrics_chain, lines)
    return {"metrics_stored", "metrics_chain"}


def _end(run: Run, end: MetricsEnd) -> set[str]:
    if end.size > run.metrics_stored or run.phase != RunPhase.CLOSED:
        return set()
    if not end.size and not run.metrics_stored:
        run.metrics_proof = MetricsProof.NONE
    elif end.size == run.metrics_stored and end.digest == run.metrics_chain:
        run.metrics_proof = MetricsProof.WHOLE
    else:
        log.error("The metrics of %s are not those of its host.", run.pk)
        run.metrics_proof = MetricsProof.DIFFERS
    return {"metrics_proof"}


def _raw(piece: MetricsPiece) -> bytes:
    """The bytes; fewer where the payload cannot be unpacked. Never more than the piece says."""
    if not piece.z:
        return piece.data
    try:
        return zlib.decompressobj().decompress(piece.data, piece.end - piece.start)
    except zlib.error:
        return b""
