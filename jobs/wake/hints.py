"""Hints to workers and dispatchers: messages that only say "look again". A hint is sent after the commit. It may be
lost, and it may come twice.

No caller waits for the broker: one thread of the process sends the hints, and joins those that gather while it sends.
If the broker is unavailable (one attempt takes seconds), the product becomes slower, because the sweep finds what is
due; but never wrong, and no page becomes slower.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from functools import partial

from celery import current_app
from django.db import transaction

from agents.infra.outbox import Outbox
from agents.infra.sql import Parameter, SelectStatement
from agents.models import Host
from jobs.models import Trial
from jobs.wake import wakeup_list

log = logging.getLogger(__name__)

DISPATCH = "dispatch"
# What dispatchers do themselves: these hints go to their wake-up lists.
LOOK, WATCH = "jobs.tasks.dispatch", "jobs.tasks.watch"
TO_DISPATCHERS = frozenset({"jobs.tasks.schedule", LOOK, WATCH})
EXPIRES_S = 30
RETRY_S = 1.0

Id = int | str

_studies_of = SelectStatement(
    lambda: Trial.objects.filter(job__among=Parameter("jobs")).order_by().values_list("tuning_job")
)


def jobs(ids: Collection[int]) -> None:
    """Decide about these jobs."""
    _after_commit("jobs.tasks.advance", ids)


def schedule() -> None:
    """Waiting jobs may be placed now."""
    transaction.on_commit(partial(post, "jobs.tasks.schedule", ()), robust=True)


def hosts(ids: Collection[int]) -> None:
    """Something else is wanted on these hosts: wake the dispatchers that hold their leases."""
    if ids:
        transaction.on_commit(partial(_to_dispatchers, LOOK, sorted(ids)), robust=True)


def watch(ids: Collection[int]) -> None:
    """These hosts are to watch, free or remove something: wake the dispatchers that hold their leases."""
    if ids:
        transaction.on_commit(partial(_to_dispatchers, WATCH, sorted(ids)), robust=True)


def roll(runs: Collection[str]) -> None:
    """The stored pieces of these logs are long enough for a segment."""
    _after_commit("jobs.tasks.roll", runs)


def notifications(ids: Collection[int]) -> None:
    """Send these notifications."""
    _after_commit("jobs.tasks.notify", ids)


def tuning(ids: Collection[int]) -> None:
    """Look at these tuning jobs: a trial has moved, or its parameters are wanted."""
    _after_commit("jobs.tasks.tune", ids)


def trials(jobs: Collection[int]) -> None:
    """Look at the tuning jobs that these jobs are trials of. Other jobs may be among them."""
    if jobs:
        tuning(set(_studies_of.column(jobs=list(jobs))))


def outputs() -> None:
    """Runs that wrote outputs have closed: what they left on their hosts can be stored now."""
    transaction.on_commit(partial(post, "jobs.tasks.outputs", ()), robust=True)


def enrol(host_id: int) -> None:
    """Run the checklist of this host."""
    _after_commit("jobs.tasks.enrol", [host_id])


def _after_commit(task: str, ids: Collection[Id]) -> None:
    if ids:
        transaction.on_commit(partial(post, task, ids), robust=True)


def _to_dispatchers(task: str, ids: list[int]) -> None:
    by_owner: dict[str, list[int]] = defaultdict(list)
    for pk, owner in Host.objects.filter(pk__in=ids).values_list("pk", "lease_owner"):
        by_owner[owner].append(pk)
    for owner, held in by_owner.items():
        # A host without a lease: the dispatcher that takes the hint takes the lease.
        post(task, held, f"{DISPATCH}.{owner}" if owner else DISPATCH)


def post(task: str, ids: Collection[Id], queue: str | None = None) -> None:
    """Send the hint now. Never waits, never raises."""
    _messages.post((task, queue), ids)


def send(task: str, ids: list[Id], queue: str | None) -> None:
    """Push to the wake-up list of dispatchers, or send a Celery task: for all other work, and while Redis is
    unavailable."""
    if task in TO_DISPATCHERS:
        try:
            return wakeup_list.push(queue or DISPATCH, [int(pk) for pk in ids], watch=task == WATCH)
        except wakeup_list.REDIS_UNAVAILABLE as problem:
            log.debug("The wake-up list is unavailable: %s", problem)
    one_by_one = task == "jobs.tasks.enrol"
    for args in [[each] for each in ids] if one_by_one else [[ids]] if ids else [[]]:
        current_app.send_task(task, args=args, queue=queue, retry=False, expires=EXPIRES_S)


class TaskSender:
    """Sends the hints that have gathered, and logs once that the broker is unavailable."""

    def __init__(self, send: Callable[[str, list[Id], str | None], None]) -> None:
        self._send = send
        self._unavailable = False

    def tell(self, batch: dict[tuple[str, str | None], set[Id]]) -> None:
        try:
            for (task, queue), ids in batch.items():
                self._send(task, sorted(ids), queue)
            self._unavailable = False
        except Exception as problem:  # any driver, any reason: a lost hint is not an error
            if not self._unavailable:
                log.warning(
                    "The broker is unavailable (%s); the sweep finds what is due.", type(problem).__name__
                )
            self._unavailable = True
            time.sleep(RETRY_S)


_messages: Outbox[tuple[str, str | None], Id] = Outbox("hints", lambda: TaskSender(send).tell)
