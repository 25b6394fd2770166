"""Hints: messages that only say "look again". They go out after the commit, may be lost, and may come twice.

Nobody waits for the broker: hints are handed to one thread of the process, which joins what gathers while it speaks.
A broker that is away (the attempt alone takes seconds) makes the product slower, because the sweep looks anyway; never
wrong, and no page slower.
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
from agents.models import Host
from jobs.wake import wakeup_list

log = logging.getLogger(__name__)

DISPATCH = "dispatch"
# What dispatchers do themselves, and are rung for.
RUNG = frozenset({"jobs.tasks.schedule", "jobs.tasks.dispatch"})
EXPIRES_S = 30
REST_S = 1.0

Id = int | str


def jobs(ids: Collection[int]) -> None:
    """Decide about these jobs."""
    _after_commit("jobs.tasks.advance", ids)


def schedule() -> None:
    """Somebody may be placed now."""
    transaction.on_commit(partial(post, "jobs.tasks.schedule", ()), robust=True)


def hosts(ids: Collection[int]) -> None:
    """What is wanted on these hosts has changed: tell the dispatchers that hold their leases."""
    if ids:
        transaction.on_commit(partial(_to_dispatchers, sorted(ids)), robust=True)


def roll(runs: Collection[str]) -> None:
    """The tails of these logs are long enough for a file."""
    _after_commit("jobs.tasks.roll", runs)


def notifications(ids: Collection[int]) -> None:
    """These are to be sent."""
    _after_commit("jobs.tasks.notify", ids)


def enrol(host_id: int) -> None:
    """This host's checklist is to be run."""
    _after_commit("jobs.tasks.enrol", [host_id])


def _after_commit(task: str, ids: Collection[Id]) -> None:
    if ids:
        transaction.on_commit(partial(post, task, ids), robust=True)


def _to_dispatchers(ids: list[int]) -> None:
    by_owner: dict[str, list[int]] = defaultdict(list)
    for pk, owner in Host.objects.filter(pk__in=ids).values_list("pk", "lease_owner"):
        by_owner[owner].append(pk)
    for owner, held in by_owner.items():
        # Nobody's host: whichever dispatcher hears it takes the lease.
        post("jobs.tasks.dispatch", held, f"{DISPATCH}.{owner}" if owner else DISPATCH)


def post(task: str, ids: Collection[Id], queue: str | None = None) -> None:
    """Now. Never waits, never raises."""
    _messages.post((task, queue), ids)


def send(task: str, ids: list[Id], queue: str | None) -> None:
    """Dispatchers have a bell; whatever else is to be done, and this too while nobody hears the bell, is a task."""
    if task in RUNG:
        try:
            return wakeup_list.push(queue or DISPATCH, [int(pk) for pk in ids])
        except wakeup_list.REDIS_UNAVAILABLE as problem:
            log.debug("The bell is away: %s", problem)
    one_by_one = task == "jobs.tasks.enrol"
    for args in [[each] for each in ids] if one_by_one else [[ids]] if ids else [[]]:
        current_app.send_task(task, args=args, queue=queue, retry=False, expires=EXPIRES_S)


class TaskSender:
    """Sends what has gathered, and tells once that the broker is away."""

    def __init__(self, send: Callable[[str, list[Id], str | None], None]) -> None:
        self._send = send
        self._away = False

    def tell(self, batch: dict[tuple[str, str | None], set[Id]]) -> None:
        try:
            for (task, queue), ids in batch.items():
                self._send(task, sorted(ids), queue)
            self._away = False
        except Exception as problem:  # any driver, any reason: a lost hint is no error
            if not self._away:
                log.warning("The broker is away (%s); the sweep finds what is due.", type(problem).__name__)
            self._away = True
            time.sleep(REST_S)


_messages: Outbox[tuple[str, str | None], Id] = Outbox("hints", lambda: TaskSender(send).tell)
