"""Recordings of shells in the storage of the console: proved, moved into files, read, deleted.

A recording that is fetched is in rows. When it is complete, its digest is compared with the host's, and it becomes one
file beside the logs. The file is written before the row that points to it: a crash leaves a file without a row, which
is swept as those of logs are.
"""

from __future__ import annotations

import hashlib
import io
import logging
import zlib
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import IO

from django.db import transaction
from django.db.models import F, Q

from jobs.logs import storage
from jobs.models import RecordingPiece, RecordingState, ShellSession
from jobs.projects import audit
from jobs.recordings import policy
from jobs.wake import announce

log = logging.getLogger(__name__)

AT_ONCE, BATCH = 20, 500
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


def keep_complete(now: datetime) -> None:
    """Prove the recordings whose hosts have sent everything, and move them into files."""
    done = Q(recording_size=F("recording_stored"), recording_state=RecordingState.COMING)
    rows = ShellSession.objects.filter(done).select_related("run__job__project", "run__replica")
    for session in rows.defer("run__order", "run__log_proof").order_by("pk")[:AT_ONCE]:
        try:
            _keep(session, now)
        except OSError:
            log.exception("The recording of shell %s cannot be kept; it is tried again.", session.pk)


def _keep(session: ShellSession, now: datetime) -> None:
    state, name, digest = RecordingState.NONE, "", ""
    if session.recording_stored:
        digest, packed = _packed(session)
        state = _judged(session, digest)
        name = storage.write(
            f"{session.run.job_id}/{session.run_id}/shell-{session.recording}.cast.z", packed
        )
    coming = ShellSession.objects.filter(pk=session.pk, recording_state=RecordingState.COMING)
    with transaction.atomic():
        is_ours = coming.update(recording_state=state, recording_file=name)
        if is_ours:
            RecordingPiece.objects.filter(session=session).delete()
            _audit(session, state, digest, now)
            announce.hint(f"job:{session.run.job_id}")
    if name and not is_ours:
        storage.remove(name)


def _packed(session: ShellSession) -> tuple[str, IO[bytes]]:
    """(the SHA-256 of the recording, the recording compressed)."""
    found, packer, packed = hashlib.sha256(), zlib.compressobj(6), io.BytesIO()
    for data in stream(session):
        found.update(data)
        packed.write(packer.compress(data))
    packed.write(packer.flush())
    return found.hexdigest(), packed


def _judged(session: ShellSession, digest: str) -> RecordingState:
    if not session.recording_digest:
        return RecordingState.CUT
    return RecordingState.WHOLE if digest == session.recording_digest else RecordingState.DIFFERS


def _audit(session: ShellSession, state: RecordingState, digest: str, now: datetime) -> None:
    """The digest is in the audit, whose rows nobody changes: a recording that is changed later is found out."""
    run = session.run
    after = {"state": state.value, "bytes": session.recording_stored, "sha256": digest}
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
