"""Celery's door: three lines each, ids only, every one safe to run twice, late, or never."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from agents import fleet
from jobs import advance as advancing
from jobs import checks, postman
from jobs import schedule as scheduling
from jobs import sweep as sweeping


@shared_task(name="jobs.tasks.advance")
def advance(ids: list[int]) -> None:
    advancing.advance(ids, timezone.now())


@shared_task(name="jobs.tasks.schedule")
def schedule() -> None:
    scheduling.schedule(timezone.now())


@shared_task(name="jobs.tasks.sweep")
def sweep() -> None:
    sweeping.sweep(timezone.now())


@shared_task(name="jobs.tasks.roll")
def roll(runs: list[str]) -> None:
    sweeping.roll(runs)


@shared_task(name="jobs.tasks.notify")
def notify(notice_ids: list[int]) -> None:
    postman.postman.put(notice_ids)


@shared_task(name="jobs.tasks.dispatch")
def dispatch(host_ids: list[int]) -> None:
    """Only ever consumed by a dispatcher, in whose process the links are."""
    fleet.poke(host_ids)


@shared_task(name="jobs.tasks.enrol")
def enrol(host_id: int) -> None:
    checks.checker.put(host_id)
