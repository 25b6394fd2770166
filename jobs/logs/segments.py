"""Move the oldest pieces of a log's tail from the database into files (segments), and join small pieces.

The order makes every crash harmless. The file is written first, durably. Then, in one transaction and only if no other
worker rolled meanwhile, the row that points to it is created and the pieces are deleted. A file without a row is an
orphan and is swept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import psycopg
from django.conf import settings
from django.db import connection, transaction
from django.db.models import Count, F, Q, QuerySet
from psycopg.types.numeric import Int8

from agents.infra.failpoints import failpoint
from agents.infra.sql import Parameter, SelectStatement
from jobs.logs import storage
from jobs.logs.pieces import Block, Mark, merged
from jobs.models import LogPiece, LogSegment, Run, ShellSession

# How much of a complete log may stay in the database for good.
SMALL_TAIL = 64 * 1024
MANY_PIECES = 1_024
ROLLED_AT_ONCE = 20
# A file is written before its row. It is an orphan if it has had no row for so long.
ORPHAN_AFTER_S = 1800.0
BATCH = 500

PIECES = """unnest(
    %(run)s::text[], %(start)s::bigint[], %(stop)s::bigint[], %(z)s::boolean[], %(data)b::bytea[],
    %(at)s::jsonb[], %(wall)s::float8[]
) AS piece(run, start, stop, z, data, at, wall)"""
KEEP = f"""
INSERT INTO jobs_logpiece (run_id, start, "end", z, data, at, wall)
SELECT piece.run, piece.start, piece.stop, piece.z, piece.data, piece.at, piece.wall FROM {PIECES}
"""
# Run with a binary cursor of the driver: each segment fetches megabytes, which Django's cursor would get as text.
FIRST = """
WITH tail AS (SELECT start, "end", z, data, at FROM jobs_logpiece WHERE run_id = %s AND start >= %s)
SELECT start, "end", z, data, at FROM tail
WHERE start < %s + (SELECT MIN(start) FROM jobs_logpiece WHERE run_id = %s AND start >= %s)
ORDER BY start
"""


def size() -> int:
    return settings.TRAINYARD.segment_mb * storage.MB


def _with_long_tails() -> QuerySet[Run, tuple[str]]:
    runs = Run.objects.filter(forgotten_at=None).annotate(tail=F("log_stored") - F("log_rolled"))
    long = Q(tail__gte=Parameter("size")) | Q(log_complete_at__isnull=False, tail__gt=SMALL_TAIL)
    return runs.filter(long).order_by("pk").values_list("pk")[:ROLLED_AT_ONCE]


_long_tails = SelectStatement(_with_long_tails)


def to_roll() -> list[str]:
    """Runs whose tail is long enough for a segment or will not grow any more."""
    return _long_tails.column(size=size())


def roll(run_id: str) -> bool:
    """Make one segment of this run if its tail is long enough. True when there may be another one to make."""
    run = Run.objects.only("id", "job_id", "log_rolled", "log_stored", "log_complete_at").get(pk=run_id)
    enough = size()
    start = run.log_rolled
    if run.log_stored - start < enough and (run.log_complete_at is None or run.log_stored == start):
        return False
    blocks = _first_blocks(run, enough)
    end = blocks[-1].end if blocks else run.log_stored
    key, lines = "", 0
    index: list[list[object]] = []
    if blocks:
        lines = sum(block.raw().count(b"\n") for block in blocks)
        data, index = _packed(merged(blocks))
        key = storage.write(f"{run.job_id}/{run.pk}/{start:016d}-{end:016d}", data)
        failpoint("roll.written")
    if not _point_to(run, start, end, key, index, lines):
        if key:
            storage.remove(key)
        return False
    failpoint("roll.after")
    return run.log_stored - end >= enough


def _first_blocks(run: Run, size: int) -> list[Block]:
    """The first blocks of the tail that make one segment. The last may exceed it; a gap may precede the first."""
    values: list[Any] = [run.pk, run.log_rolled, size, run.pk, run.log_rolled]
    if connection.vendor == "postgresql":
        connection.ensure_connection()
        with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
            rows = cursor.execute(FIRST, values, binary=True).fetchall()
    else:
        with connection.cursor() as cursor:
            rows = cursor.execute(FIRST, values).fetchall()
    return [_block(*row) for row in rows]


def _block(start: int, end: int, z: bool, data: bytes, at: Any) -> Block:
    marks = json.loads(at) if isinstance(at, str) else at
    return Block(start, end, bool(z), bytes(data), tuple((int(place), float(wall)) for place, wall in marks))


def _packed(blocks: Iterable[Block]) -> tuple[bytes, list[list[object]]]:
    data = bytearray()
    index: list[list[object]] = []
    for block in blocks:
        index.append([block.start, block.end, len(data), len(block.payload), block.z, block.at])
        data += block.payload
    return bytes(data), index


def _point_to(run: Run, start: int, end: int, key: str, index: list[list[object]], lines: int) -> bool:
    """Create the row of the segment. False when its last piece is gone: rolled by another worker, joined or deleted."""
    with transaction.atomic():
        rows = Run.objects.select_for_update(no_key=True).filter(pk=run.pk, log_rolled=start)
        if not rows.order_by().values_list("pk"):
            return False
        if key and not LogPiece.objects.filter(run=run, start__lt=end, end=end).exists():
            return False
        Run.objects.filter(pk=run.pk).update(log_rolled=end)
        if key:
            walls = [mark[1] for entry in index for mark in entry[5]]  # type: ignore[attr-defined]
            wall = walls[0] if walls else None
            LogSegment.objects.create(
                run=run, start=start, end=end, key=key, index=index, wall=wall, lines=lines
            )
            LogPiece.objects.filter(run=run, start__lt=end).delete()
    return True


def crowded(limit: int) -> list[str]:
    """Runs with so many small pieces that joining pays."""
    counted = LogPiece.objects.order_by().values("run").annotate(n=Count("pk"))
    return [row["run"] for row in counted.filter(n__gte=MANY_PIECES)[:limit]]


def compact(run_id: str) -> None:
    """Join the small pieces of this run in place. The row lock of the run excludes rolling and appending meanwhile."""
    with transaction.atomic():
        Run.objects.select_for_update(no_key=True).only("pk").get(pk=run_id)
        pieces = list(LogPiece.objects.filter(run=run_id).order_by("start")[: MANY_PIECES * 4])
        blocks = merged(block_of(piece) for piece in pieces)
        LogPiece.objects.filter(pk__in=[piece.pk for piece in pieces]).delete()
        keep([(run_id, block) for block in blocks])


def keep(blocks: Sequence[tuple[str, Block]]) -> None:
    """Insert a row (a piece) for each of these blocks of log bytes. Each block comes with the id of its run."""
    if connection.vendor != "postgresql":
        LogPiece.objects.bulk_create([piece_of(run, block) for run, block in blocks])
    elif blocks:
        # A cursor of the driver sends bytes as they are; Django's cursor would send them as text.
        with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
            cursor.execute(KEEP, columns(blocks))


def columns(blocks: Sequence[tuple[str, Block]]) -> dict[str, list[Any]]:
    """The parameters of PIECES."""
    return {
        "run": [run for run, _ in blocks],
        "start": [Int8(block.start) for _, block in blocks],
        "stop": [Int8(block.end) for _, block in blocks],
        "z": [block.z for _, block in blocks],
        "data": [block.payload for _, block in blocks],
        "at": [json.dumps(block.at) for _, block in blocks],
        "wall": [block.wall for _, block in blocks],
    }


def block_of(piece: LogPiece) -> Block:
    return stored_block(piece.start, piece.end, piece.z, piece.data, piece.at)


def stored_block(start: int, end: int, z: bool, data: bytes | memoryview, at: Sequence[Mark]) -> Block:
    """The block of the columns of a piece."""
    return Block(start, end, z, bytes(data), tuple((int(offset), float(wall)) for offset, wall in at))


def piece_of(run_id: str, block: Block) -> LogPiece:
    at = [list(mark) for mark in block.at]
    return LogPiece(
        run_id=run_id, start=block.start, end=block.end, z=block.z, data=block.payload, at=at, wall=block.wall
    )


def sweep_orphans(elapsed: float) -> int:
    """Remove files that no row points to: a crash between file and row left them. Returns how many were removed.

    For how long a file has had no row, this process has seen itself, by `clock.elapsed()`. The date of the file is that
    of another clock: if one of the two is wrong, a file that was just written looks old.
    """
    orphans = {key for batch in batched(storage.files(), BATCH) for key in _without_row(batch)}
    for key in _seen.keys() - orphans:
        del _seen[key]
    old = [key for key in orphans if elapsed - _seen.setdefault(key, elapsed) >= ORPHAN_AFTER_S]
    for key in _without_row(old):
        storage.remove(key)
        del _seen[key]
    return len(old)


def _without_row(keys: Sequence[str]) -> list[str]:
    recordings = [key for key in keys if "/shell-" in key]
    known = set(LogSegment.objects.filter(key__in=keys).values_list("key", flat=True))
    if recordings:
        # By their runs, which have an index: names of files have none.
        rows = ShellSession.objects.filter(run__in={key.split("/")[1] for key in recordings})
        found = rows.filter(recording_file__in=recordings)
        known.update(found.order_by().values_list("recording_file", flat=True))
    return [key for key in keys if key not in known]


def batched(keys: Iterable[str], size: int) -> Iterator[list[str]]:
    rest = iter(keys)
    while batch := list(islice(rest, size)):
        yield batch


# When this process first saw that a file has no row.
_seen: dict[str, float] = {}


def purge(run_ids: list[str]) -> None:
    """Delete the logs of these runs. Files go after the commit: a crash in between leaves orphans, which are swept."""
    keys = list(LogSegment.objects.filter(run__in=run_ids).values_list("key", flat=True))

    def remove() -> None:
        for key in keys:
            storage.remove(key)

    with transaction.atomic():
        LogPiece.objects.filter(run__in=run_ids).delete()
        LogSegment.objects.filter(run__in=run_ids).delete()
        transaction.on_commit(remove, robust=True)
