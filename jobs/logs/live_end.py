"""The live end of a log: the status of the run and the newest bytes. Its viewers ask many times a second.

It is one statement without a model: through the ORM the same read costs eight times as much, most of it for building
SQL.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from django.db import connection

from jobs.logs import masking
from jobs.logs.pieces import Block, Mark

MAX_PIECES = 16

READ = """
SELECT run.log_size, run.log_stored, run.phase, run.log_complete_at IS NOT NULL,
    run.log_digest_here, run.log_digest_host,
    (SELECT newest.id FROM jobs_run newest WHERE newest.replica_id = run.replica_id
       AND newest.held = %s
     ORDER BY newest.attempt DESC, newest.number DESC LIMIT 1),
    piece.start, piece."end", piece.z, piece.data, piece.at
FROM jobs_run run
LEFT JOIN jobs_logpiece piece ON piece.run_id = run.id AND piece.start >= %s
WHERE run.id = %s
ORDER BY piece.start LIMIT %s
"""


@dataclass(frozen=True, slots=True)
class Status:
    """What a viewer sees of a run's log beside its bytes."""

    run: str
    size: int
    stored: int
    phase: str
    complete: bool
    digest_here: str
    digest_host: str
    newest_run: str
    # Why nothing more of it is stored, for a person; empty while it goes on.
    held: str = ""


def read_live_end(run_id: str, start: int) -> tuple[Status | None, list[Block]]:
    """The run's status, and the first pieces that begin at `start` or later. None when there is no such run.

    Stored bytes that are in none of these pieces are in a gap, in a segment, or in a piece that was joined with earlier
    ones: reader.read finds them. It alone masks secrets, so there are no pieces where the job has any.
    """
    with connection.cursor() as cursor:
        cursor.execute(READ, (False, start, run_id, MAX_PIECES))
        rows = cursor.fetchall()
    if not rows:
        return None, []
    size, stored, phase, complete, here, host, newest = rows[0][:7]
    status = Status(run_id, max(size, stored), stored, phase, bool(complete), here, host, newest)
    if masking.of_run(run_id) is not None:
        return status, []
    blocks = [
        Block(first, end, bool(z), bytes(data), _marks(at))
        for *_, first, end, z, data, at in rows
        if end is not None
    ]
    return status, blocks


def _marks(at: Any) -> tuple[Mark, ...]:
    marks = json.loads(at) if isinstance(at, str) else at
    return tuple((int(offset), float(wall)) for offset, wall in marks)
