"""Recordings of shells in the storage of the console: proved, moved into files, read, deleted.

A recording that is fetched is in rows. When it is complete, its digest is compared with the host's, and it becomes one
file beside the logs. The file is written before the row that points to it: a crash leaves a file without a row, which
is swept as those of logs are.
"""

from __future__ import annotations

import hashlib
import io
import logging
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import IO

from django.db import transaction
from django.db.models import F, Q, QuerySet

from agents.infra.database_errors import DATABASE_UNAVAILABLE
from jobs.logs import storage
from jobs.models import RecordingPiece, RecordingState, ShellSession
from jobs.projects import audit
from jobs.recordings import policy
from jobs.wake import announce

log = logging.getLogger(__name__)

AT_ONCE, BATCH = 20, 500
SLICE_S = 2.0
READ_BYTES = 256 * 1024


def stream(session: ShellSession) -> Iterator[bytes]:
    """The stored bytes of a recording, in pieces."""
    at, name = 0, session.recording_file
    if not name:
        # One query for each piece: a slow reader must not hold a connection of the database.
        while (piece := RecordingPiece.objects.filter(session=session, start=at).first()) is not None:
            yield zlib.decompress(bytes(piece.data))
            at = piece.end
        # Between two pieces it may have become a file: the rest is there then.
        now = ShellSession.objects.only("recording_file").filter(pk=session.pk).first()
        name = now.recording_file if now else ""
    if name:
        yield from _of_file(name, at)


def _of_file(name: str, start: int) -> Iterator[bytes]:
    """The recording from byte `start` on, in pieces."""
    for data in _unpacked(name):
        if rest := data[start:]:
            yield rest
        start = max(start - len(data), 0)


def _unpacked(name: str) -> Iterator[bytes]:
    """At most READ_BYTES at a time: some files are a thousand times as large when they are unpacked."""
    unpacker = zlib.decompressobj()
    with storage.store().open(name, "rb") as file:
        while data := file.read(READ_BYTES):
            while data:
                yield unpacker.decompress(data, READ_BYTES)
                data = unpacker.unconsumed_tail
    yield unpacker.flush()
    if not unpacker.eof:
        raise OSError(f"the file {name} ends too early")


def keep_complete(now: datetime, clock: Callable[[], float] = time.monotonic) -> None:
    """Prove the recordings whose hosts have sent everything, and move them into files. The rest waits after SLICE_S."""
    until = clock() + SLICE_S
    # In any order: some that fail each time must not keep others waiting.
    for pk in list(_complete().order_by("?").values_list("pk", flat=True)[:AT_ONCE]):
        # Another sweep may have kept it meanwhile.
        if session := _complete().filter(pk=pk).first():
            _try_to_keep(session, now)
        if clock() >= until:
            return


def _complete() -> QuerySet[ShellSession]:
    done = Q(recording_size=F("recording_stored"), recording_state=RecordingState.COMING)
    rows = ShellSession.objects.filter(done).select_related("run__job__project", "run__replica")
    return rows.defer("run__order", "run__log_proof")


def _try_to_keep(session: ShellSession, now: datetime) -> None:
    try:
        _keep(session, now)
    except DATABASE_UNAVAILABLE:
        raise
    except Exception:
        log.exception("The recording of shell %s cannot be kept; it is tried again.", session.pk)


def _keep(session: ShellSession, now: datetime) -> None:
    size, digest, packed = _packed(session)
    state, name = _judged(session, size, digest), ""
    if size:
        name = storage.write(
            f"{session.run.job_id}/{session.run_id}/shell-{session.recording}.cast.z", packed
        )
    coming = ShellSession.objects.filter(pk=session.pk, recording_state=RecordingState.COMING)
    with transaction.atomic():
        is_ours = coming.update(recording_state=state, recording_file=name, recording_stored=size)
        if is_ours:
            RecordingPiece.objects.filter(session=session).delete()
            _audit(session, state, size, digest, now)
            announce.hint(f"job:{session.run.job_id}")
    if name and not is_ours:
        storage.remove(name)


def _packed(session: ShellSession) -> tuple[int, str, IO[bytes]]:
    """(the size of what can be read of the recording, its SHA-256, the recording compressed)."""
    size, found, packer, packed = 0, hashlib.sha256(), zlib.compressobj(6), io.BytesIO()
    try:
        for data in stream(session):
            size += len(data)
            found.update(data)
            packed.write(packer.compress(data))
    except zlib.error:
        # It will not be better next time.
        log.exception("The recording of shell %s can be read up to byte %d only.", session.pk, size)
    packed.write(packer.flush())
    return size, found.hexdigest() if size else "", packed


def _judged(session: ShellSession, size: int, digest: str) -> RecordingState:
    if not size:
        return RecordingState.NONE
    if not session.recording_digest or size < session.recording_stored:
        return RecordingState.CUT
    return RecordingState.WHOLE if digest == session.recording_digest else RecordingState.DIFFERS


def _audit(session: ShellSession, state: RecordingState, size: int, digest: str, now: datetime) -> None:
    """The digest is in the audit, whose rows nobody changes: a recording that is changed later is found out."""
    run = session.run
    after = {"state": state.value, "bytes": size, "sha256": digest}
    subject = f"{run.job_id}/{run.replica.name}"
    audit.record(
        session.user_name, "shell.recording", "shell", subject, None, after, now, project=run.job.project
    )


def record_replay(session: ShellSession, actor: str, now: datetime) -> None:
    """Note in the audit who has got a recording."""
    after = {"shell": session.recording, "owner": session.user_name}
    subject = f"{session.run.job_id}/{session.run.replica.name}"
    audit.record(actor, "shell.replay", "shell", subject, None, after, now, project=session.run.job.project)


def expire(now: datetime) -> None:
    """Delete recordings whose time is over."""
    before = now - timedelta(days=policy.kept_days())
    kept = Q(recording_stored__gt=0) | Q(recording_state=RecordingState.COMING)
    old = ShellSession.objects.filter(kept, closed_at__lt=before)
    _delete(list(old.order_by("pk").values_list("pk", "recording_file")[:BATCH]))


def purge(run_ids: Sequence[str]) -> None:
    """Delete the recordings of these runs, and fetch no more of them."""
    rows = ShellSession.objects.filter(run__in=run_ids).exclude(recording="")
    _delete(list(rows.values_list("pk", "recording_file")))


def _delete(found: Sequence[tuple[int, str]]) -> None:
    """Files go after the commit: a crash in between leaves files without rows, which are swept."""
    ids = [pk for pk, _ in found]

    def remove() -> None:
        for _, name in found:
            if name:
                storage.remove(name)

    with transaction.atomic():
        rows = ShellSession.objects.filter(pk__in=ids)
        rows.update(recording_state=RecordingState.DELETED, recording_stored=0, recording_file="")
        RecordingPiece.objects.filter(session__in=ids).delete()
        transaction.on_commit(remove, robust=True)
