"""A job that Trainyard cannot handle by a fault of its own: it rests, longer each time, and its cause is logged once.

It is offered no place meanwhile, so that it costs no pass anything and stands in nobody's way. Each sweep looks whose
rest is over (`wake`); what else is due of such a job (`due_at`: a cancel, a limit on its waiting) goes on as ever.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from django.db import transaction

from agents.infra.sql import Parameter, SelectStatement, UpdateStatement
from jobs.lifecycle.snapshot import hold_jobs
from jobs.models import Job

log = logging.getLogger(__name__)

FIRST, LONGEST = timedelta(minutes=1), timedelta(hours=1)
MAX_WORDS = 500

_rested = SelectStatement(
    lambda: Job.every.filter(rests_until__lte=Parameter("now")).order_by().values_list("pk")
)
_wake = UpdateStatement(
    lambda: Job.every.filter(pk__among=Parameter("ids"), rests_until__lte=Parameter("now")), rests_until=None
)


def set_aside(job: Job, problem: Exception, words: str, now: datetime) -> None:
    """To be called where the problem was caught."""
    cause = f"{type(problem).__name__}: {problem}"[:MAX_WORDS]
    before = job.fault or {}
    tries = int(before.get("tries", 0)) + 1 if before.get("cause") == cause else 1
    if tries == 1:
        log.error(words, job.pk, exc_info=problem)
    until = now + min(FIRST * 2 ** min(tries - 1, 16), LONGEST)
    Job.every.filter(pk=job.pk).update(fault={"cause": cause, "tries": tries}, rests_until=until)


def offer_again(now: datetime) -> int:
    """Those whose rest is over are offered places again; how many there were."""
    ids = _rested.column(now=now)
    if not ids:
        return 0
    with transaction.atomic():
        hold_jobs(ids=ids)  # in the order in which everybody locks them
        return _wake(ids=ids, now=now)
