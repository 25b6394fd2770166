"""Stacks of a job: where the Python programs of all its replicas stand now. All hosts are asked at once.

The console checks whether the person may open a shell, which is the right that this needs. A host that stands still
holds a thread until its time is over, and each person has one place: who asks twice at a time is refused.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db.models import QuerySet

from agents.infra import database_pool
from agents.infra.places import AllTaken, Places
from agents.infra.refusals import Refused, Unavailable
from agents.infra.texts import said
from agents.ssh import keys, stacks
from agents.ssh.dial import DialError
from agents.ssh.stacks import RunStacks
from agents.ssh.targets import Target
from jobs.models import Job, Run
from jobs.projects import audit
from jobs.rules.lifecycle.states import RunPhase

# Those who take stacks at the same time in this process, and how many of them are one person's.
places = Places(4, each=1)
# How many hosts are asked at once, how long one may take, and all of them.
AT_ONCE, HOST_S, WITHIN_S = 32, 12.0, 25.0
# What one host is asked for at once, as its runner takes it.
RUNS_OF_HOST = 64
# What all hosts together may tell of a job. Its runs have equal parts of it.
JOB_BYTES = 8 * 1024 * 1024

LATE = said("its host did not answer in time")
NOT_RUNNING = said("it is not running")
NO_WEB_ACCESS = said("The job was submitted without enableWebAccess.")
BUSY = said("Stacks are being taken already. Try again in a moment.")


@dataclass(frozen=True, slots=True)
class Taken:
    """For each replica, in their order, what its host has told, or why nothing is known of it."""

    at: datetime
    replicas: Mapping[str, RunStacks | str]


def take(job: Job, actor: str, share: str, now: datetime) -> Taken:
    """`share`: whose place it takes. Raises Refused, or Unavailable while the person's place or all are taken."""
    if not job.spec.get("enableWebAccess"):
        raise Refused("job", NO_WEB_ACCESS)
    try:
        with places.place(share):
            key = keys.private_key()
            names = list(job.replicas.order_by("pool", "index").values_list("name", flat=True))
            runs = list(_running(job))
            after = {"replicas": len(runs), "hosts": len({run.host_id for run in runs})}
            audit.record(actor, "stacks.take", "job", str(job.pk), None, after, now, project=job.project)
            parts = [(Target.of(part[0].host), part) for part in _by_host(runs)]
            # No connection to the database is held while hosts are waited for.
            database_pool.give_back()
            found = _asked(parts, key)
    except AllTaken:
        raise Unavailable(BUSY) from None
    except keys.KeyUnreadable as problem:
        raise Unavailable(str(problem)) from problem
    return Taken(now, {name: found.get(name, NOT_RUNNING) for name in names})


def _running(job: Job) -> QuerySet[Run]:
    rows = Run.objects.filter(job=job, attempt=job.attempt, held=False, phase=RunPhase.RUNNING)
    return rows.select_related("host", "replica").defer("order", "log_proof").order_by("pk")


def _by_host(runs: list[Run]) -> list[list[Run]]:
    hosts: dict[int, list[Run]] = {}
    for run in runs:
        hosts.setdefault(run.host_id, []).append(run)
    return [
        part[at : at + RUNS_OF_HOST] for part in hosts.values() for at in range(0, len(part), RUNS_OF_HOST)
    ]


def _asked(parts: list[tuple[Target, list[Run]]], key: keys.PrivateKey) -> dict[str, RunStacks | str]:
    """What the hosts tell, by the names of replicas. Those that answer too late are left to their own deadlines."""
    until = time.monotonic() + WITHIN_S
    room = JOB_BYTES // max(1, sum(len(part) for _, part in parts))
    pool = ThreadPoolExecutor(AT_ONCE, "stacks")
    try:
        asked = {
            pool.submit(_ask, target, key, [run.pk for run in part], until, room): part
            for target, part in parts
        }
        wait(asked, timeout=max(0.0, until - time.monotonic()))
        found: dict[str, RunStacks | str] = {}
        for future, part in asked.items():
            told = _told(future)
            for run in part:
                found[run.replica.name] = told if isinstance(told, str) else told.get(run.pk, LATE)
        return found
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _ask(
    target: Target, key: keys.PrivateKey, runs: list[str], until: float, room: int
) -> dict[str, RunStacks]:
    mine = min(until, time.monotonic() + HOST_S)
    return stacks.look(target, key, settings.DEPLOYMENT, runs, mine, room)


def _told(future: Future[dict[str, RunStacks]]) -> dict[str, RunStacks] | str:
    if not future.done():
        return LATE
    try:
        return future.result()
    except DialError as problem:
        return problem.args[0] if problem.args else LATE
