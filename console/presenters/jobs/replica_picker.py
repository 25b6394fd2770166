"""Finds the replicas of a job by name, rank, host or state, and says where each leads on a tab of the job's page."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from django.urls import reverse

from console.auth.access import Verb
from console.presenters import badges
from console.presenters.badges import Badge
from console.presenters.jobs.job_page import LOGS, OVERVIEW, TABS
from console.presenters.jobs.replicas import UNREACHABLE_STATUSES
from jobs.models import Job, Run
from jobs.rules.lifecycle.states import RunPhase
from jobs.rules.spec.cluster_variables import TRAINER_POOLS

SHOWN = 50


@dataclass(frozen=True, slots=True)
class Choice:
    name: str
    badge: Badge
    host: str
    url: str


@dataclass(frozen=True, slots=True)
class Picker:
    """`to`: the tab that the choices lead to. `all_url`: the tab without a choice. `more`: how many are not listed."""

    to: str
    text: str
    choices: tuple[Choice, ...]
    more: int
    all_url: str


def picker(job: Job, allowed: Collection[Verb], text: str, to: str) -> Picker:
    """Return the replicas that fit. `allowed`: what the person may do to the job. Makes two queries."""
    to = to if to in {name for name, _word, verb in TABS if verb in allowed} else OVERVIEW
    found = [choice for choice, words in _choices(job, to) if _fits(text.lower().strip(), words)]
    more = max(len(found) - SHOWN, 0)
    return Picker(to, text, tuple(found[:SHOWN]), more, reverse(to, args=[job.pk]))


def _choices(job: Job, to: str) -> Iterable[tuple[Choice, tuple[str, ...]]]:
    """Each replica, with the words by which it is found. The first word is its rank."""
    runs = Run.objects.filter(job=job, attempt=job.attempt, held=False).order_by("number")
    latest = {row[0]: row[1:] for row in runs.values_list("replica", "host__name", "host__status", "phase")}
    rank = 0
    for pk, name, pool, state in job.replicas.order_by("pool", "index").values_list(
        *("pk", "name", "pool", "state")
    ):
        host, status, phase = latest.get(pk, ("", "", RunPhase.CLOSED))
        lost = status in UNREACHABLE_STATUSES and phase != RunPhase.CLOSED
        badge = badges.UNREACHABLE if lost else badges.REPLICA[state]
        label, rank = (str(rank), rank + 1) if pool in TRAINER_POOLS else ("", rank)
        yield (
            Choice(name, badge, host, _address(job, to, name)),
            (label, name, host.lower(), badge.word.lower()),
        )


def _address(job: Job, to: str, name: str) -> str:
    return (
        reverse("log", args=[job.pk, name]) if to == LOGS else f"{reverse(to, args=[job.pk])}?replica={name}"
    )


def _fits(text: str, words: tuple[str, ...]) -> bool:
    rank, *others = words
    return not text or text == rank or any(text in word for word in others)
