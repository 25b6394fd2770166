"""Stores the files that a job has written on one host: new and changed ones, each whole.

While runs may write there, a file is taken when two looks show it unchanged; while none may, in any case.
A file that changes while it comes is not stored, and is taken again later. Memory does not grow with the files.
"""

from __future__ import annotations

import hashlib
import mimetypes
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from django.db.models import Q, QuerySet
from django.utils import timezone

from agents.infra.refusals import Exhausted, Refused
from agents.infra.texts import said
from agents.ssh.outputs import FileState, ListedFile, OutputsBroken, OutputsConversation, Part
from jobs.artifacts import objects
from jobs.artifacts.incoming import Digests
from jobs.models import OutputFile
from jobs.outputs import times
from jobs.outputs.claiming import Claim

# A file is still when it did not change for so long.
STILL = timedelta(seconds=5)
ROWS = 500
NOTED_S = 2.0
# A transfer that breaks off goes on where it was, on a new connection, after so many seconds each.
RECONNECTS_S = (0.5, 2.0, 5.0, 15.0)

CHANGED = said("it was written to while it came")
# With entries of these kinds, a file that is not listed may still be there.
HIDING = frozenset({"unreadable", "too_many"})
_STATE = ["size", "mtime_ns", "ctime_ns", "inode", "seen_at", "stored_at", "gone_at", "problem"]

Connect = Callable[[], OutputsConversation]


class Changed(Exception):
    """The file is not as it was listed."""


class Coming:
    """One file that is coming: in one part, or after a connection broke off in another one, which brings the rest."""

    def __init__(self, row: OutputFile, part: Part) -> None:
        self._row, self.part, self.done = row, part, 0
        # Of the rest, where it comes by itself: the host tells no digest of the whole file then.
        self._rest: hashlib._Hash | None = None
        self._is_listed = self._is_as_listed(part)

    def chunks(self) -> Iterator[bytes]:
        for data in self.part.chunks():
            self.done += len(data)
            if self._rest is not None:
                self._rest.update(data)
            yield data

    def go_on(self, part: Part) -> None:
        self.part, self._rest = part, hashlib.sha256()
        self._is_listed &= self._is_as_listed(part)

    def check(self, found: Digests) -> None:
        """Raise Changed if what has come is not the file as it was listed."""
        sha256 = found.sha256 if self._rest is None else self._rest.hexdigest()
        if not (self._is_listed and self.part.is_whole(sha256)):
            raise Changed

    def _is_as_listed(self, part: Part) -> bool:
        return part.state == state_of(self._row) and part.size == self._row.size - self.done


class Upload:
    """One look at a host: lists its files, and stores what is to be stored."""

    def __init__(self, claim: Claim, connect: Connect, is_quiet: bool) -> None:
        """Raises DialError."""
        self._claim, self._row, self._is_quiet, self._connect = claim, claim.row, is_quiet, connect
        self.host = connect()
        self._noted: list[OutputFile] = []
        self._note_at = time.monotonic() + NOTED_S
        # Grows with each new connection: answers to questions of an older one do not come any more.
        self._connections = 1
        self.has_news = False
        self._left_out: dict[str, int] = {}

    def close(self) -> None:
        self.host.close()

    def run(self) -> None:
        """Raises DialError, Refused, Unavailable or Superseded. What was stored before that is noted."""
        self._look()
        self._claim.write(looked_at=timezone.now(), left_out=self._left_out, problem="")
        try:
            for rows in self._to_store(timezone.now()):
                self._store(deque(rows))
        finally:
            self._note()
        self._claim.write(moving_path="", moving_bytes=0)

    # -- what is there --

    def _look(self) -> None:
        """Compare the host's list with what it listed before, and write the differences down."""
        now, page, paths = timezone.now(), list[ListedFile](), set[str]()
        buckets, elsewhere = {bucket for bucket, _ in self._row.addresses}, 0
        for file in self.host.list():
            # A host that lies must not write into buckets that the job has nothing to do with.
            if file.path.partition("/")[0] not in buckets:
                elsewhere += 1
            elif file.path not in paths:
                paths.add(file.path)
                page.append(file)
            if len(page) >= ROWS:
                self._remember(page, now)
                page = []
        self._remember(page, now)
        self._left_out = dict(self.host.left_out, **({"elsewhere": elsewhere} if elsewhere else {}))
        if not self.host.exists or HIDING & set(self._left_out):
            return
        there = OutputFile.objects.filter(outputs=self._row, gone_at=None).order_by()
        gone = [pk for pk, path in there.values_list("pk", "path").iterator() if path not in paths]
        for start in range(0, len(gone), ROWS):
            OutputFile.objects.filter(pk__in=gone[start : start + ROWS]).update(gone_at=now)

    def _remember(self, page: Sequence[ListedFile], now: datetime) -> None:
        rows = OutputFile.objects.filter(outputs=self._row, path__in=[file.path for file in page])
        known = {row.path: row for row in rows}
        changed, new = [], []
        for file in page:
            row = known.get(file.path)
            if row is None:
                new.append(_filled(OutputFile(outputs=self._row, path=file.path), file.state, now))
            elif file.state != state_of(row) or row.gone_at is not None:
                changed.append(_filled(row, file.state, now))
        OutputFile.objects.bulk_create(new)
        OutputFile.objects.bulk_update(changed, _STATE)
        self.has_news |= bool(new or changed)
        self._claim.renew()

    def _to_store(self, now: datetime) -> Iterator[list[OutputFile]]:
        """The files to store, those that were written last at the end: what names others is often written last."""
        after = Q()
        while True:
            waiting = to_store(self._row.pk).filter(after).order_by("mtime_ns", "pk")
            if not self._is_quiet:
                waiting = waiting.filter(seen_at__lte=now - STILL)
            rows = list(waiting[:ROWS])
            if not rows:
                return
            yield rows
            last = rows[-1]
            after = Q(mtime_ns__gt=last.mtime_ns) | Q(mtime_ns=last.mtime_ns, pk__gt=last.pk)

    # -- its bytes --

    def _store(self, rows: deque[OutputFile]) -> None:
        while rows:
            connections = self._connections
            for part in self.host.read((row.path, 0, row.size) for row in list(rows)):
                row = rows.popleft()
                row.problem = self._store_one(row, part)
                self._noted.append(row)
                if time.monotonic() >= self._note_at or len(self._noted) >= ROWS:
                    self._note()
                self._claim.renew()
                if self._connections != connections:
                    break

    def _store_one(self, row: OutputFile, part: Part) -> str:
        """Returns why it was not stored; empty if it was."""
        if part.error:
            return part.error
        bucket, _, name = row.path.partition("/")
        coming = Coming(row, part)
        chunks = self._whole(row, coming)
        try:
            stored = objects.put_object(
                self._row.job.project,
                bucket,
                name,
                chunks,
                mimetypes.guess_type(name)[0] or "",
                {"job": str(self._row.job_id), times.MTIME_NS: str(row.mtime_ns)},
                by=self._row.job.owner_name,
                check_found=coming.check,
            )
        except Changed:
            return CHANGED
        except Exhausted:
            raise
        except Refused as refused:
            with suppress(Changed):
                for _ in chunks:
                    pass
            return refused.message
        row.stored_at, row.generation = timezone.now(), stored.generation
        return ""

    def _whole(self, row: OutputFile, coming: Coming) -> Iterator[bytes]:
        """All bytes of the file, over as many connections as they need."""
        pauses = iter(RECONNECTS_S)
        while True:
            try:
                for data in coming.chunks():
                    self._claim.renew(moving_path=row.path, moving_bytes=coming.done)
                    yield data
                return
            except OutputsBroken:
                coming.go_on(self._resumed(row, coming.done, pauses))

    def _resumed(self, row: OutputFile, done: int, pauses: Iterator[float]) -> Part:
        """The rest of the file, over a new connection. Raises OutputsBroken when that fails too often."""
        while True:
            pause = next(pauses, None)
            if pause is None:
                raise OutputsBroken(said("the connection broke off too often"))
            time.sleep(pause)
            self._claim.write(moving_path=row.path, moving_bytes=done)
            self.host.close()
            with suppress(OutputsBroken):
                self.host = self._connect()
                self._connections += 1
                part = next(iter(self.host.read([(row.path, done, row.size)])))
                if part.error:
                    raise Changed
                return part

    def _note(self) -> None:
        OutputFile.objects.bulk_update(self._noted, ["stored_at", "generation", "problem"], batch_size=ROWS)
        self._noted, self._note_at = [], time.monotonic() + NOTED_S


def to_store(outputs: int) -> QuerySet[OutputFile]:
    return OutputFile.objects.filter(outputs=outputs, stored_at=None, gone_at=None)


def state_of(row: OutputFile) -> FileState:
    return FileState(row.size, row.mtime_ns, row.ctime_ns, row.inode)


def _filled(row: OutputFile, state: FileState, now: datetime) -> OutputFile:
    row.size, row.mtime_ns, row.ctime_ns, row.inode = state.size, state.mtime_ns, state.ctime_ns, state.inode
    row.seen_at, row.stored_at, row.gone_at, row.problem = now, None, None, ""
    return row
