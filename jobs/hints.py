"""Hints: messages that only say "look again". They go out after the commit, may be lost, and may come twice.

Nothing here raises: a broker that is away makes the product slower (the sweep looks anyway), never wrong.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from celery import current_app
from django.db import transaction
from kombu.exceptions import OperationalError

from agents.models import Host

log = logging.getLogger(__name__)

DISPATCH = "dispatch"
EXPIRES_S = 30


def jobs(ids: Collection[int]) -> None:
    """Decide about these jobs."""
    if ids:
        _after_commit(partial(_send, "jobs.tasks.advance", [sorted(ids)]))


def schedule() -> None:
    """Somebody may be placed now."""
    _after_commit(partial(_send, "jobs.tasks.schedule", []))


def hosts(ids: Collection[int]) -> None:
    """What is wanted on these hosts has changed: tell the dispatchers that hold their leases."""
    if ids:
        _after_commit(partial(_to_dispatchers, sorted(ids)))


def roll(runs: Collection[str]) -> None:
    """The tails of these logs are long enough for a file."""
    if runs:
        _after_commit(partial(_send, "jobs.tasks.roll", [sorted(runs)]))


def enrol(host_id: int) -> None:
    """This host's checklist is to be run."""
    _after_commit(partial(_send, "jobs.tasks.enrol", [host_id]))


def _to_dispatchers(ids: list[int]) -> None:
    by_owner: dict[str, list[int]] = defaultdict(list)
    for pk, owner in Host.objects.filter(pk__in=ids).values_list("pk", "lease_owner"):
        by_owner[owner].append(pk)
    for owner, held in by_owner.items():
        # Nobody's host: whichever dispatcher hears it takes the lease.
        _send("jobs.tasks.dispatch", [held], queue=f"{DISPATCH}.{owner}" if owner else DISPATCH)


def _after_commit(send: Callable[[], None]) -> None:
    transaction.on_commit(send, robust=True)


def _send(task: str, args: list[Any], queue: str | None = None) -> None:
    try:
        current_app.send_task(task, args=args, queue=queue, retry=False, expires=EXPIRES_S)
    except (OperationalError, OSError) as problem:
        log.warning(
            "A hint was lost (%s: %s); the sweep will find what is due.", task, type(problem).__name__
        )
