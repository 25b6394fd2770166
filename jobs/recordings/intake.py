"""Take in the pieces of recordings that hosts send. The caller holds the lock of the run's row.

A piece is stored when it begins where the stored bytes end, so that one that comes twice changes nothing.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Sequence

from django.db.models import Case, F, QuerySet, Value, When

from agents.links.control_plane import RecordingEnd, RecordingPiece
from jobs.models import RecordingPiece as Piece
from jobs.models import RecordingState, Run, ShellSession

log = logging.getLogger(__name__)

# A host writes at most 64 MiB, and some lines. What is larger was written by somebody else: a program of the job may.
MAX_BYTES = 80 << 20


def take(run: str, reports: Sequence[RecordingPiece | RecordingEnd]) -> None:
    """Of fifty shells that print, a batch has fifty pieces: they take a few statements together, not a few each. The
    lines of the run's log wait meanwhile."""
    coming = ShellSession.objects.filter(run=run, recording_state=RecordingState.COMING, recording_size=None)
    if pieces := [each for each in reports if isinstance(each, RecordingPiece)]:
        _append(coming, pieces)
    for end in reports:
        if isinstance(end, RecordingEnd):
            _end(coming.filter(recording=end.shell), end)


def _end(coming: QuerySet[ShellSession], end: RecordingEnd) -> None:
    if end.digest:
        coming.filter(recording_stored=end.size).update(recording_size=end.size, recording_digest=end.digest)
    else:
        # A host that has nothing of a shell that is open may be about to make it.
        over = coming.filter(recording_stored=end.size, closed_at__isnull=False)
        over.update(recording_size=end.size)


def _append(coming: QuerySet[ShellSession], pieces: Sequence[RecordingPiece]) -> None:
    sessions = {
        each.recording: each
        for each in coming.filter(recording__in={piece.shell for piece in pieces})
        .order_by("pk")
        .select_for_update(of=("self",))
        .only("recording", "recording_stored")
    }
    rows = [row for piece in pieces if (row := _row(sessions, piece)) is not None]
    grown = {row.session_id: row.end for row in rows}
    if grown:
        stored = Case(*(When(pk=session, then=Value(end)) for session, end in grown.items()))
        ShellSession.objects.filter(pk__in=grown).update(recording_stored=stored)
        Piece.objects.bulk_create(rows)


def _row(sessions: dict[str, ShellSession], piece: RecordingPiece) -> Piece | None:
    """The row of a piece that goes on where the stored bytes end."""
    session = sessions.get(piece.shell)
    if session is None or session.recording_stored != piece.start:
        return None
    if piece.end > MAX_BYTES:
        log.warning("The recording %s from its host is too long. Its rest is not fetched.", piece.shell)
        ShellSession.objects.filter(pk=session.pk).update(recording_size=piece.start)
        del sessions[piece.shell]
        return None
    data = _raw(piece)
    if len(data) != piece.end - piece.start:
        log.warning(
            "A piece of the recording %s from its host cannot be read; it is asked for again.", piece.shell
        )
        return None
    session.recording_stored = piece.end
    # Packed quickly: when the recording is whole, it is packed once more as a file.
    return Piece(session=session, start=piece.start, end=piece.end, data=zlib.compress(data, 1))


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
