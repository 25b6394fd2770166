"""Finds the replicas of a job by name, rank, host or state, and says where each leads on a tab of the job's page.

Of logs, several can be ticked, and are shown together.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from django.urls import reverse

from console.auth.access import Verb
from console.presenters import badges
from console.presenters.badges import Badge
from console.presenters.jobs.job_page import LOGS, OVERVIEW, TABS
from console.presenters.jobs.logs_together import MAX_REPLICAS
from console.presenters.jobs.replicas import UNREACHABLE_STATUSES
from jobs.models import Job, Run
from jobs.rules.lifecycle.states import RunPhase
from jobs.rules.spec.cluster_variables import TRAINER_POOLS

SHOWN = 50
# As "0-7,63": the ranks 0 to 7, and 63.
_RANKS = re.compile(r"\d{1,6}(-\d{1,6})?(,\d{1,6}(-\d{1,6})?)*\Z")


@dataclass(frozen=True, slots=True)
class Choice:
    name: str
    badge: Badge
    host: str
    url: str
    ticked: bool


@dataclass(frozen=True, slots=True)
class Picker:
    """`to`: the tab that the choices lead to. `all_url`: the tab without a choice. `more`: how many are not listed.

    `several_url`: where several are shown together; empty where that cannot be. `found_url`: all that fit, together.
    """

    to: str
    text: str
    choices: tuple[Choice, ...]
    found: int
    more: int
    all_url: str
    several_url: str
    found_url: str


def picker(job: Job, allowed: Collection[Verb], text: str, to: str, ticked: Collection[str] = ()) -> Picker:
    """Return the replicas that fit, those that are ticked first. `allowed`: what the person may do to the job.

    Makes two queries.
    """
    to = to if to in {name for name, _word, verb in TABS if verb in allowed} else OVERVIEW
    every = list(_choices(job, to, frozenset(ticked)))
    found = [choice for choice, words in every if _fits(text.lower().strip(), words)]
    kept = [choice for choice, _words in every if choice.ticked]
    others = [choice for choice in found if not choice.ticked]
    url = reverse(to, args=[job.pk])
    return Picker(
        to=to,
        text=text,
        choices=(*kept, *others[:SHOWN]),
        found=len(found),
        more=max(len(others) - SHOWN, 0),
        all_url=url,
        several_url=url if to == LOGS else "",
        found_url=_together_url(url, found) if to == LOGS and text else "",
    )


def _together_url(url: str, found: list[Choice]) -> str:
    if not 1 < len(found) <= MAX_REPLICAS:
        return ""
    return f"{url}?replicas={','.join(choice.name for choice in found)}"


def _choices(job: Job, to: str, ticked: frozenset[str]) -> Iterable[tuple[Choice, tuple[str, ...]]]:
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
            Choice(name, badge, host, _address(job, to, name), name in ticked),
            (label, name, host.lower(), badge.word.lower()),
        )


def _address(job: Job, to: str, name: str) -> str:
    return (
        reverse("log", args=[job.pk, name]) if to == LOGS else f"{reverse(to, args=[job.pk])}?replica={name}"
    )


def _fits(text: str, words: tuple[str, ...]) -> bool:
    rank, *others = words
    return not text or _among(rank, text) or any(text in word for word in others)


def _among(rank: str, text: str) -> bool:
    """Whether the rank is one of those that the text names."""
    if not rank or not _RANKS.match(text):
        return False
    borders = (part.partition("-") for part in text.split(","))
    return any(int(low) <= int(rank) <= int(high or low) for low, _, high in borders)
