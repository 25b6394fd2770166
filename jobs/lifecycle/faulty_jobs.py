"""Jobs that Trainyard cannot place or read because of a bug of its own: they are set aside, longer after each failure.

A job that is set aside is not offered a place, so that it costs no scheduling pass time and delays no other job. Its
cause is logged once. Each sweep calls `offer_again` for the jobs whose time is over. Everything else that is due for
such a job (a cancel, a limit on its waiting) goes on as usual.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from django.db import transaction

from agents.infra.sql import Parameter, SelectStatement, UpdateStatement
from jobs.lifecycle.snapshot import hold_jobs
from jobs.models import Job

log = logging.getLogger(__name__)

FIRST_PAUSE, MAX_PAUSE = timedelta(minutes=1), timedelta(hours=1)
MAX_CAUSE = 500

_due = SelectStatement(
    lambda: Job.every.filter(rests_until__lte=Parameter("now")).order_by().values_list("pk")
)
_clear = UpdateStatement(
    lambda: Job.every.filter(pk__among=Parameter("ids"), rests_until__lte=Parameter("now")), rests_until=None
)


def set_aside(job: Job, problem: Exception, message: str, now: datetime) -> None:
    """Set the job aside. Call it inside the `except` clause that caught the problem."""
    cause = f"{type(problem).__name__}: {problem}"[:MAX_CAUSE]
    before = job.fault or {}
    tries = int(before.get("tries", 0)) + 1 if before.get("cause") == cause else 1
    if tries == 1:
        log.error(message, job.pk, exc_info=problem)
    until = now + min(FIRST_PAUSE * 2 ** min(tries - 1, 16), MAX_PAUSE)
    Job.every.filter(pk=job.pk).update(fault={"cause": cause, "tries": tries}, rests_until=until)


def offer_again(now: datetime) -> int:
    """Let jobs whose time is over be offered places again. Returns how many."""
    ids = _due.column(now=now)
    if not ids:
        return 0
    with transaction.atomic():
        hold_jobs(ids=ids)  # in the order of ids, as everywhere
        return _clear(ids=ids, now=now)
