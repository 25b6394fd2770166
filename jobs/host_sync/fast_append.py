"""Frames that continue what is stored, and nothing else: the common case of intake, with one statement for a batch.

A replica that prints is told about fifty times a second and more. Where everything that a host told is log bytes of
logs that go on, nothing has to be decided: no row has to be read first. How far each log is stored is remembered, and
the statement compares: the host's lease token, the run's host, its phase and its end. Whatever is not exactly as it
was thought to be is left to intake.py, which locks, reads and sorts it out; it may be given the same batch again.

A run that is closed is no other case while more of its log is to come: a program that prints fast is over long before
its log is here. What ends the log is left to intake.py, which says that it is complete.
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
from jobs.rules.lifecycle.states import RunPhase

# Runs whose ends are remembered. Beyond it all are forgotten, and learned again at their next batch.
MAX_ENDS = 10_000

# The lease's row and then the runs, by id, are locked as everybody does it, and all is one commit.
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
SQLITE_MOVE = """
UPDATE jobs_run SET log_stored = %s, log_size = MAX(log_size, %s)
WHERE id = %s AND log_stored = %s AND (phase <> %s OR (log_complete_at IS NULL AND %s < log_size))
  AND host_id = (SELECT id FROM agents_host WHERE id = %s AND lease_token = %s)
RETURNING log_rolled
"""
SQLITE_PIECE = """
INSERT INTO jobs_logpiece (run_id, start, "end", z, data, at, wall) VALUES (%s, %s, %s, %s, %s, %s, %s)
"""


@dataclass(frozen=True, slots=True)
class LogGrowth:
    """One log's next bytes, from `before` on."""

    run: str
    before: int
    after: int
    blocks: Sequence[Block]


class FastAppender:
    """How far the logs are stored, as this process wrote them last: a guess that each statement proves."""

    def __init__(self) -> None:
        self._ends: dict[str, int] = {}

    def learn(self, ends: dict[str, int]) -> None:
        if len(self._ends) + len(ends) > MAX_ENDS:
            self._ends.clear()
        self._ends.update(ends)

    def expect(self, ends: dict[str, int]) -> None:
        """Logs that are about to be pulled from there, so that their first bytes come by the short way too."""
        self.learn({run: end for run, end in ends.items() if run not in self._ends})

    def sort(self, arrivals: Sequence[Arrival]) -> tuple[list[Arrival], list[Arrival]]:
        """Bytes of known logs, and all the rest."""
        frames: list[Arrival] = []
        rest: list[Arrival] = []
        for each in arrivals:
            (frames if isinstance(each.what, Frame) and each.run in self._ends else rest).append(each)
        return frames, rest

    def take(self, host_id: int, token: int, arrivals: Sequence[Arrival]) -> IntakeResult | None:
        """None: not all of it is stored, and intake is to look."""
        grown = self._growths(arrivals)
        if not grown or storage.is_disk_low():
            return None
        failpoint("store.before")
        rolled = _write(host_id, token, grown)
        failpoint("store.after")
        self.learn({each.run: each.after for each in grown if each.run in rolled})
        if len(rolled) < len(grown):
            for each in grown:
                self._ends.pop(each.run, None)
            return None
        ends = {each.run: each.after for each in grown}
        long = {run for run, end in ends.items() if end - rolled[run] >= segments.size()}
        return IntakeResult(acks=ends, logs=set(ends), long_tails=long)

    def _growths(self, arrivals: Sequence[Arrival]) -> list[LogGrowth]:
        """Empty where anything is not simply the next bytes of a known log."""
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
            LogGrowth(run, self._ends[run], tail.stored, tail.blocks) for run, tail in sorted(tails.items())
        ]


def _write(host_id: int, token: int, grown: Sequence[LogGrowth]) -> dict[str, int]:
    """Of each run whose tail was where it was thought to be, and now is longer: up to where it is in segments."""
    if connection.vendor == "postgresql":
        return _write_at_once(host_id, token, grown)
    return _write_in_turn(host_id, token, grown)


def _write_at_once(host_id: int, token: int, grown: Sequence[LogGrowth]) -> dict[str, int]:
    blocks = [(each.run, block) for each in grown for block in each.blocks]
    values = {
        "host": host_id,
        "token": token,
        "closed": RunPhase.CLOSED.value,
        "runs": [each.run for each in grown],
        "before": [Int8(each.before) for each in grown],
        "after": [Int8(each.after) for each in grown],
        **segments.columns(blocks),
    }
    with connection.wrap_database_errors:
        connection.ensure_connection()
        with psycopg.Cursor(connection.connection) as cursor:
            return dict(cursor.execute(POSTGRES, values).fetchall())


def _write_in_turn(host_id: int, token: int, grown: Sequence[LogGrowth]) -> dict[str, int]:
    rolled: dict[str, int] = {}
    with transaction.atomic(), connection.cursor() as cursor:
        for run in grown:
            closed = (RunPhase.CLOSED.value, run.after)
            place = (run.after, run.after, run.run, run.before, *closed, host_id, token)
            row = cursor.execute(SQLITE_MOVE, place).fetchone()
            if row is not None:
                rolled[run.run] = row[0]
                rows = [
                    (run.run, b.start, b.end, b.z, b.payload, json.dumps(b.at), b.wall) for b in run.blocks
                ]
                cursor.executemany(SQLITE_PIECE, rows)
    return rolled
