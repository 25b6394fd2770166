"""Read a stored log from any offset and in any size, as people may see it: the values of secrets are masked.

Whoever shows bytes of a log reads them here: pages, sockets, REST, search, downloads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agents.infra.sql import Parameter, SelectStatement
from jobs.logs import masking, storage, stored_bytes
from jobs.logs.stored_bytes import NO_FILE, Chunk, MissingRange
from jobs.models import LogGap, LogPiece, LogSegment, Run

__all__ = [
    "NO_FILE",
    "Chunk",
    "LogStatus",
    "MissingRange",
    "is_masked",
    "logs_paused",
    "offset_at",
    "read",
    "shown_end",
    "size",
    "status",
    "stream",
]


_log_stored = SelectStatement(
    lambda: Run.objects.filter(pk=Parameter("run")).order_by().values_list("log_stored")
)


@dataclass(frozen=True, slots=True)
class LogStatus:
    """How much of a log is here. `size_here` includes gaps. `matches` is None while there is nothing to compare."""

    size_here: int
    size_host: int
    complete: bool
    digest_here: str
    digest_host: str
    matches: bool | None
    gaps: tuple[MissingRange, ...]


def size(run: Run) -> int:
    """Up to which offset the log is stored here now, gaps included."""
    stored = _log_stored.column(run=run.pk)
    if not stored:
        raise Run.DoesNotExist
    return int(stored[0])


def read(run: Run, start: int, limit: int) -> Chunk:
    """Read at most `limit` bytes from `start` on. Gaps before them are skipped and listed in the chunk.

    At the live end of a log whose job has secrets, the last bytes are held back while they may be the beginning of one.
    """
    mask = masking.of_run(run.pk)
    return stored_bytes.read(run, start, limit) if mask is None else mask.read(run, start, limit)


def stream(run: Run, start: int, end: int) -> Iterator[bytes]:
    """Yield what can be read of [start, end), in order. Gaps are skipped: `status` lists them."""
    yield from stored_bytes.chunks(read, run, start, end)


def shown_end(run: Run, stored: int) -> int:
    """Up to which offset the stored log can be read at the moment."""
    mask = masking.of_run(run.pk)
    return stored if mask is None else stored - mask.held_back(run, stored)


def is_masked(run_id: str) -> bool:
    """Whether the job has secrets, so that `*` may stand for their bytes and the digest of what is shown is another."""
    return masking.of_run(run_id) is not None


def offset_at(run: Run, when: float) -> int:
    """The offset of the first bytes that were printed at this moment or later, by the host's clock."""
    for rows in (LogPiece.objects, LogSegment.objects):
        row = rows.filter(run=run, wall__lte=when).order_by("-start").first()
        if row is not None:
            found = (
                row.at if isinstance(row, LogPiece) else [mark for entry in row.index for mark in entry[5]]
            )
            return int(max(offset for offset, wall in found if wall <= when))
    return 0


def status(run: Run) -> LogStatus:
    row = Run.objects.defer("order", "log_proof").get(pk=run.pk)
    gaps = tuple(MissingRange(gap.start, gap.end, gap.reason) for gap in LogGap.objects.filter(run=row))
    both = bool(row.log_digest_here and row.log_digest_host)
    return LogStatus(
        size_here=row.log_stored,
        size_host=row.log_size,
        complete=row.log_complete_at is not None,
        digest_here=row.log_digest_here,
        digest_host=row.log_digest_host,
        matches=row.log_digest_here == row.log_digest_host if both else None,
        gaps=gaps,
    )


def logs_paused() -> bool:
    """Whether hosts have to keep their logs at the moment, because the console's disk is nearly full."""
    return storage.is_disk_low()
