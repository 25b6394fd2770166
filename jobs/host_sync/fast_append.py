"""The fast path of intake: append frames that continue stored logs, with one statement for a batch.

A replica that prints sends fifty frames a second and more. Where a batch holds only the next bytes of known logs,
nothing is to be decided and no row has to be read first. The process remembers how far each log is stored, and the
statement compares: the host's lease token, the run's host, its phase and the end of its log. A batch that does not
match exactly is left to intake.py, which locks, reads and sorts it; it may get the same batch again.

A closed run is treated alike while more of its log is to come: a program that prints fast is over long before all of
its log is here. The last bytes of a log are left to intake.py, which marks the log as complete.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import psycopg
from django.db import connection, transaction
from psycopg.types.numeric import Int8

from agents.infra.failpoints import failpoint
from agents.links.control_plane import Arrival, Frame
from jobs.host_sync.apply_reports import IntakeResult
from jobs.logs import segments, storage
from jobs.logs.pieces import Block, Tail
from jobs.projects import log_storage
from jobs.rules.lifecycle.states import RunPhase

# How many ends are remembered. Beyond this all are forgotten, and learned again at the next batch of each run.
MAX_ENDS = 10_000

# Locks the row of the lease and then the runs by id, in the order of all code, and commits everything at once.
POSTGRES = f"""
WITH lease AS (
    SELECT id FROM agents_host WHERE id = %(host)s AND lease_token = %(token)s FOR NO KEY UPDATE
), ours AS (
    SELECT run.id FROM jobs_run run JOIN lease ON run.host_id = lease.id
    WHERE run.id = ANY(%(runs)s)
    ORDER BY run.id FOR NO KEY UPDATE OF run
), moved AS (
    UPDATE jobs_run run SET log_stored = tail.after, log_size = GREATEST(run.log_size, tail.after)
    FROM ours, unnest(%(runs)s::text[], %(before)s::bigint[], %(after)s::bigint[]) AS tail(id, before, after)
    WHERE run.id = ours.id AND run.id = tail.id AND run.log_stored = tail.before
      AND (run.phase <> %(closed)s OR (run.log_complete_at IS NULL AND tail.after < run.log_size))
    RETURNING run.id, run.log_rolled
), stored AS (
    INSERT INTO jobs_logpiece (run_id, start, "end", z, data, at, wall)
    SELECT piece.run, piece.start, piece.stop, piece.z, piece.data, piece.at, piece.wall
    FROM moved JOIN {segments.PIECES} ON moved.id = piece.run
)
SELECT id, log_rolled FROM moved
"""
SQLITE_APPEND = """
UPDATE jobs_run SET log_stored = %s, log_size = MAX(log_size, %s)
WHERE id = %s AND log_stored = %s AND (phase <> %s OR (log_complete_at IS NULL AND %s < log_size))
  AND host_id = (SELECT id FROM agents_host WHERE id = %s AND lease_token = %s)
RETURNING log_rolled
"""
SQLITE_PIECE = """
INSERT INTO jobs_logpiece (run_id, start, "end", z, data, at, wall) VALUES (%s, %s, %s, %s, %s, %s, %s)
"""


@dataclass(frozen=True, slots=True)
class LogAppend:
    """The next bytes of one log: [before, after)."""

    run: str
    before: int
    after: int
    blocks: Sequence[Block]


class FastAppender:
    """Remembers how far each log is stored, as this process wrote it last. Each statement verifies the memory."""

    def __init__(self) -> None:
        self._ends: dict[str, int] = {}

    def learn(self, ends: dict[str, int]) -> None:
        if len(self._ends) + len(ends) > MAX_ENDS:
            self._ends.clear()
        self._ends.update(ends)

    def expect(self, ends: dict[str, int]) -> None:
        """Remember the start of logs that will be pulled, so that their first bytes take the fast path too."""
        self.learn({run: end for run, end in ends.items() if run not in self._ends})

    def sort(self, arrivals: Sequence[Arrival]) -> tuple[list[Arrival], list[Arrival]]:
        """Split a batch into frames of known logs and all the rest."""
        frames: list[Arrival] = []
        rest: list[Arrival] = []
        for each in arrivals:
            (frames if isinstance(each.what, Frame) and each.run in self._ends else rest).append(each)
        return frames, rest

    def take(self, host_id: int, token: int, arrivals: Sequence[Arrival]) -> IntakeResult | None:
        """Store the frames. None when not all of them could be stored: intake.py has to handle the batch."""
        appends = self._appends(arrivals)
        if not appends or storage.is_disk_low():
            return None
        held = log_storage.held_runs()
        if held and any(each.run in held for each in appends):
            return None
        failpoint("store.before")
        rolled = _write(host_id, token, appends)
        failpoint("store.after")
        self.learn({each.run: each.after for each in appends if each.run in rolled})
        if len(rolled) < len(appends):
            for each in appends:
                self._ends.pop(each.run, None)
            return None
        ends = {each.run: each.after for each in appends}
        long = {run for run, end in ends.items() if end - rolled[run] >= segments.size()}
        return IntakeResult(acks=ends, logs=set(ends), long_tails=long)

    def _appends(self, arrivals: Sequence[Arrival]) -> list[LogAppend]:
        """The appends of a batch; empty when any frame is not simply the next bytes of a known log."""
        tails: dict[str, Tail] = {}
        for arrival in arrivals:
            frame = arrival.what
            if not isinstance(frame, Frame) or arrival.run not in self._ends:
                return []
            if arrival.run not in tails:
                tails[arrival.run] = Tail(self._ends[arrival.run])
            tail = tails[arrival.run]
            tail.add(frame)
            if tail.hole:
                return []
        if any(tail.stored == self._ends[run] for run, tail in tails.items()):
            return []
        return [
            LogAppend(run, self._ends[run], tail.stored, tail.blocks) for run, tail in sorted(tails.items())
        ]


def _write(host_id: int, token: int, appends: Sequence[LogAppend]) -> dict[str, int]:
    """Append to each run whose end is as remembered. Returns, for these runs, up to where the log is in segments."""
    if connection.vendor == "postgresql":
        return _write_postgres(host_id, token, appends)
    return _write_sqlite(host_id, token, appends)


def _write_postgres(host_id: int, token: int, appends: Sequence[LogAppend]) -> dict[str, int]:
    blocks = [(each.run, block) for each in appends for block in each.blocks]
    values = {
        "host": host_id,
        "token": token,
        "closed": RunPhase.CLOSED.value,
        "runs": [each.run for each in appends],
        "before": [Int8(each.before) for each in appends],
        "after": [Int8(each.after) for each in appends],
        **segments.columns(blocks),
    }
    with connection.wrap_database_errors:
        connection.ensure_connection()
        with psycopg.Cursor(connection.connection) as cursor:
            return dict(cursor.execute(POSTGRES, values).fetchall())


def _write_sqlite(host_id: int, token: int, appends: Sequence[LogAppend]) -> dict[str, int]:
    rolled: dict[str, int] = {}
    with transaction.atomic(), connection.cursor() as cursor:
        for run in appends:
            closed = (RunPhase.CLOSED.value, run.after)
            values = (run.after, run.after, run.run, run.before, *closed, host_id, token)
            row = cursor.execute(SQLITE_APPEND, values).fetchone()
            if row is not None:
                rolled[run.run] = row[0]
                rows = [
                    (run.run, b.start, b.end, b.z, b.payload, json.dumps(b.at), b.wall) for b in run.blocks
                ]
                cursor.executemany(SQLITE_PIECE, rows)
    return rolled
