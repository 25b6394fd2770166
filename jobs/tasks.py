"""Celery's door: three lines each, ids only, every one safe to run twice, late, or never.

A database that is away is no error of theirs (`throws`): the sweep finds what is due when it is back.
"""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from agents.infra.clock import Clock
from agents.infra.database_errors import NO_DATABASE
from agents.links import fleet
from jobs import sweep as sweeping
from jobs.lifecycle import advance as advancing
from jobs.maintenance import checks
from jobs.notifications import sender
from jobs.scheduling import scheduler as scheduling


@shared_task(name="jobs.tasks.advance", throws=NO_DATABASE)
def advance(ids: list[int]) -> None:
    advancing.advance(ids, Clock())


@shared_task(name="jobs.tasks.schedule", throws=NO_DATABASE)
def schedule() -> None:
    scheduling.schedule(timezone.now())


@shared_task(name="jobs.tasks.sweep", throws=NO_DATABASE)
def sweep() -> None:
    sweeping.sweep(timezone.now())


@shared_task(name="jobs.tasks.roll", throws=NO_DATABASE)
def roll(runs: list[str]) -> None:
    sweeping.roll(runs)


@shared_task(name="jobs.tasks.notify", throws=NO_DATABASE)
def notify(notice_ids: list[int]) -> None:
    sender.postman.put(notice_ids)


@shared_task(name="jobs.tasks.dispatch", throws=NO_DATABASE)
def dispatch(host_ids: list[int]) -> None:
    """Only ever consumed by a dispatcher, in whose process the links are."""
    fleet.poke(host_ids)


@shared_task(name="jobs.tasks.enrol", throws=NO_DATABASE)
def enrol(host_id: int) -> None:
    checks.checker.put(host_id)
