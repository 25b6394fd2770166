"""The live end of a log, as its viewers look at it many times a second: what is known of the run, and what was added.

One statement and no model: through the ORM the same look costs eight times as much, most of it to spell out SQL.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.db import connection

from jobs.logs.pieces import Block

PIECES_AT_ONCE = 16

LOOK = """
SELECT run.log_size, run.log_stored, run.phase, run.log_complete_at IS NOT NULL,
    run.log_digest_here, run.log_digest_host,
    (SELECT newest.id FROM jobs_run newest WHERE newest.replica_id = run.replica_id
       AND newest.held = %s
     ORDER BY newest.attempt DESC, newest.number DESC LIMIT 1),
    piece.start, piece."end", piece.z, piece.data
FROM jobs_run run
LEFT JOIN jobs_logpiece piece ON piece.run_id = run.id AND piece.start >= %s
WHERE run.id = %s
ORDER BY piece.start LIMIT %s
"""


@dataclass(frozen=True, slots=True)
class Status:
    """What is known of a run's log beside its bytes."""

    run: str
    size: int
    stored: int
    phase: str
    complete: bool
    digest_here: str
    digest_host: str
    newest_run: str


def read_live_end(run_id: str, start: int) -> tuple[Status | None, list[Block]]:
    """The run's status, and the first pieces that begin at `start` or later. No such run: None.

    What the status calls stored and is not in a piece that begins at `start` is in a gap, a segment, or a piece that
    was joined with what came before: logs.read finds it.
    """
    with connection.cursor() as cursor:
        cursor.execute(LOOK, (False, start, run_id, PIECES_AT_ONCE))
        rows = cursor.fetchall()
    if not rows:
        return None, []
    size, stored, phase, complete, here, host, newest = rows[0][:7]
    status = Status(run_id, max(size, stored), stored, phase, bool(complete), here, host, newest)
    blocks = [Block(first, end, bool(z), bytes(data)) for *_, first, end, z, data in rows if end is not None]
    return status, blocks
