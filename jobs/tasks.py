"""The Celery tasks. They take ids only, and each is safe to run twice, late, or never.

An unavailable database is no error of a task (`throws`): the sweep finds what is due when the database is back.
"""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from agents.infra.clock import Clock
from agents.infra.database_errors import DATABASE_UNAVAILABLE
from agents.links import fleet
from jobs import sweep as sweeping
from jobs.lifecycle import advance as advancing
from jobs.maintenance import checks
from jobs.notifications import sender
from jobs.outputs import due
from jobs.scheduling import scheduler as scheduling
from jobs.tuning import tuner


@shared_task(name="jobs.tasks.advance", throws=DATABASE_UNAVAILABLE)
def advance(ids: list[int]) -> None:
    advancing.advance(ids, Clock())


@shared_task(name="jobs.tasks.schedule", throws=DATABASE_UNAVAILABLE)
def schedule() -> None:
    scheduling.schedule(timezone.now())


@shared_task(name="jobs.tasks.sweep", throws=DATABASE_UNAVAILABLE)
def sweep() -> None:
    sweeping.sweep(timezone.now())


@shared_task(name="jobs.tasks.roll", throws=DATABASE_UNAVAILABLE)
def roll(runs: list[str]) -> None:
    sweeping.roll(runs)


@shared_task(name="jobs.tasks.notify", throws=DATABASE_UNAVAILABLE)
def notify(notification_ids: list[int]) -> None:
    sender.notification_sender.put(notification_ids)


@shared_task(name="jobs.tasks.dispatch", throws=DATABASE_UNAVAILABLE)
def dispatch(host_ids: list[int]) -> None:
    """Only dispatchers consume this: the links are in their processes."""
    fleet.wake_hosts(host_ids)


@shared_task(name="jobs.tasks.watch", throws=DATABASE_UNAVAILABLE)
def watch(host_ids: list[int]) -> None:
    """As `dispatch`: only dispatchers consume this."""
    fleet.watch_hosts(host_ids)


@shared_task(name="jobs.tasks.tune", throws=DATABASE_UNAVAILABLE)
def tune(ids: list[int]) -> None:
    tuner.put(ids)


@shared_task(name="jobs.tasks.outputs", throws=DATABASE_UNAVAILABLE)
def outputs() -> None:
    due.move_due(timezone.now())


@shared_task(name="jobs.tasks.enrol", throws=DATABASE_UNAVAILABLE)
def enrol(host_id: int) -> None:
    checks.checker.put(host_id)
