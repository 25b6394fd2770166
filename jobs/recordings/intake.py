"""Take in the pieces of recordings that hosts send. The caller holds the lock of the run's row.

A piece is stored when it begins where the stored bytes end, so that one that comes twice changes nothing.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Sequence

from django.db.models import F, QuerySet

from agents.links.control_plane import RecordingEnd, RecordingPiece
from jobs.models import RecordingPiece as Piece
from jobs.models import RecordingState, Run, ShellSession

log = logging.getLogger(__name__)

# A host writes at most 64 MiB, and some lines. What is larger was written by somebody else: a program of the job may.
MAX_BYTES = 80 << 20


def take(run: str, reports: Sequence[RecordingPiece | RecordingEnd]) -> None:
    for report in reports:
        coming = ShellSession.objects.filter(
            run=run, recording=report.shell, recording_state=RecordingState.COMING, recording_size=None
        )
        if isinstance(report, RecordingPiece):
            _append(coming, report)
        elif report.digest:
            coming.filter(recording_stored=report.size).update(
                recording_size=report.size, recording_digest=report.digest
            )
        else:
            # A host that has nothing of a shell that is open may be about to make it.
            over = coming.filter(recording_stored=report.size, closed_at__isnull=False)
            over.update(recording_size=report.size)


def _append(coming: QuerySet[ShellSession], piece: RecordingPiece) -> None:
    session = coming.filter(recording_stored=piece.start).only("pk").first()
    if session is None:
        return
    if piece.end > MAX_BYTES:
        log.warning("The recording %s from its host is too long. Its rest is not fetched.", piece.shell)
        coming.filter(pk=session.pk, recording_stored=piece.start).update(recording_size=piece.start)
        return
    data = _raw(piece)
    if len(data) != piece.end - piece.start:
        log.warning(
            "A piece of the recording %s from its host cannot be read; it is asked for again.", piece.shell
        )
        return
    if coming.filter(pk=session.pk, recording_stored=piece.start).update(recording_stored=piece.end):
        Piece.objects.create(session=session, start=piece.start, end=piece.end, data=zlib.compress(data, 6))


def unfetched(runs: QuerySet[Run]) -> QuerySet[ShellSession]:
    """The shells of these runs of whose recordings their hosts still have something."""
    return ShellSession.objects.filter(
        run__in=runs, recording_state=RecordingState.COMING, recording_size=None
    )


def give_up(runs: QuerySet[Run]) -> None:
    """Of these recordings nothing more will come: what is here is kept."""
    unfetched(runs).update(recording_size=F("recording_stored"))


def _raw(piece: RecordingPiece) -> bytes:
    """The bytes; fewer where the payload cannot be unpacked. Never more than the piece says."""
    if not piece.z:
        return piece.data
    try:
        return zlib.decompressobj().decompress(piece.data, piece.end - piece.start)
    except zlib.error:
        return b""
