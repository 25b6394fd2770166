"""How long a restart of a replica or a retry of a whole job waits: the first is at once, each further one waits longer.

What makes a program fail at its start (a mount that is away, a peer that reboots) often ends by itself within minutes.
Without waits all starts that a job has would be used up within seconds.

| restart of a replica, in one attempt | waits | | retry of the whole job | waits |
| ------------------------------------ | ----- | --- | --- | --- |
| 1                                    | 0     | | 1   | 0   |
| 2                                    | 1     | | 2   | 12  |
| 3                                    | 2     | | 3   | 24  |
| 4                                    | 4     | |     |     |
| 5                                    | 8     | |     |     |

These are multiples of `TRAINYARD_RETRY_WAIT_S`. A run that lasted `WELL_S` was well: the restart after it is at once,
and the row of restarts begins anew. The numbers of restarts and retries (retry.py) do not depend on the waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from agents.infra.texts import moment, said
from jobs.rules.lifecycle.views import ReplicaView, RunView

WELL_S = 600.0
_RESTART_UNITS = (0, 1, 2, 4, 8)
_RETRY_UNITS = (0, 12, 24)
LONGEST_UNITS = max(*_RESTART_UNITS, *_RETRY_UNITS)


def restart_wait_s(replica: ReplicaView, runs: Iterable[RunView], unit_s: float) -> float:
    """The wait before the next restart. `runs`: those of the replica in this attempt."""
    short = 0
    for run in sorted(runs, key=lambda each: each.number, reverse=True):
        if lasted_s(run) >= WELL_S:
            break
        short += 1
    # Runs that a move of the job ended count as short, too; but no more restarts wait than were made.
    place = min(max(short - 1, 0), replica.restarts, len(_RESTART_UNITS) - 1)
    return unit_s * _RESTART_UNITS[place]


def retry_wait_s(retries: int, unit_s: float) -> float:
    """The wait before this retry of the whole job, counted from 1."""
    return unit_s * _RETRY_UNITS[min(retries, len(_RETRY_UNITS)) - 1]


def lasted_s(run: RunView) -> float:
    """How long the command ran: by the host's monotonic clock, else by the host's times."""
    if run.seconds is not None:
        return run.seconds
    if run.started_at is None or run.ended_at is None:
        return 0.0
    return (run.ended_at - run.started_at).total_seconds()


def still_waits(until: datetime | None, now: datetime, unit_s: float) -> bool:
    """A moment that is farther away than the longest wait shows that the clock was set back: nothing waits for it."""
    return until is not None and now < until <= now + timedelta(seconds=unit_s * LONGEST_UNITS)


def until_text(until: datetime) -> str:
    return said("until {time}", time=moment(until))
