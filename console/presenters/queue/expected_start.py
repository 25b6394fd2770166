"""When a waiting job is expected to start, and on what that stands: for the queue, the job's page and REST."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from jobs.models import ExpectedStart, Job

# A start that should have been so long ago is not told any more: nobody has simulated the queue since.
LATE = timedelta(minutes=5)
# What a start stands on. REST says these words.
LIMITS, USUAL, BOTH = "limits", "usual", "both"


@dataclass(frozen=True, slots=True)
class Expected:
    """It starts between `since` and `until`, if no job comes that goes first. With `basis` "limits" both are equal.

    limits: all jobs run to their limits. usual: all run as long as such jobs did lately. both: `since` stands on the
    one, `until` on the other.
    """

    since: datetime
    until: datetime
    basis: str


def expected_start(job: Job, row: ExpectedStart | None) -> Expected | None:
    """None: it is not known. A reservation of the job says more about the end than the simulation."""
    usual, limit = (row.usual_at, row.limit_at) if row else (None, None)
    limit = job.earliest_start_at or limit
    if (until := limit or usual) is None or until < timezone.now() - LATE:
        return None
    if usual is None or (limit is not None and usual >= limit):
        return Expected(until, until, LIMITS)
    return Expected(usual, until, BOTH if limit else USUAL)
