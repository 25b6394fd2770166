"""The replicas of a job with their runs, as frozen values for pages."""

from __future__ import annotations

import signal
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.urls import reverse
from django.utils.translation import gettext, gettext_noop
from django.utils.translation import gettext as _

from agents.models import Host, HostStatus
from console.presenters import badges
from console.presenters.badges import Badge
from console.presenters.metrics.charts import gib
from jobs.models import Job, Run
from jobs.rules.lifecycle.states import RunPhase

UNREACHABLE_STATUSES = frozenset(
    {HostStatus.UNREACHABLE, HostStatus.AUTH_FAILED, HostStatus.BLOCKED, HostStatus.MISBEHAVING}
)
LOST = {
    "lost": gettext_noop("lost: the process was no longer on the host"),
    "reboot": gettext_noop("lost: the host was restarted"),
    "tombstone": gettext_noop("never started"),
}
REFUSALS = {
    "gpu_busy": gettext_noop("not started: a GPU was in use"),
    "port_taken": gettext_noop("not started: its port was taken"),
    "disk_full": gettext_noop("not started: the host's disk is full"),
    "exec_failed": gettext_noop("not started: the command could not be executed"),
    "not_prepared": gettext_noop("not started: what the job needs there cannot be prepared"),
    "host_not_prepared": gettext_noop("not started: its host could not prepare what the job needs"),
    "storage": gettext_noop("not started: a directory of the host does not answer"),
    "unprepared": gettext_noop("not started: what it needs was thrown away on the host"),
    "bad_order": gettext_noop("not started: the host did not understand the order"),
}
OUT_OF_MEMORY = {
    "certain": gettext_noop("ran out of memory (certain: its own cgroup counted it)"),
    "likely": gettext_noop("ran out of memory (likely: its host counted a kill just then)"),
}


class HostColumns(NamedTuple):
    name: str
    status: str
    status_since: datetime


class RunColumns(NamedTuple):
    """What is shown of a run. A row of the model is many times as dear, and a job has a thousand replicas."""

    pk: str
    attempt: int
    number: int
    phase: str
    host_id: int
    replica_id: int
    message: str
    cpus: float
    memory_mb: int
    memory_enforced: bool | None
    refusal: str
    oom: bool
    oom_sure: str
    exit_code: int | None
    exit_signal: int | None
    why: str
    started_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class RunLine:
    id: str
    label: str
    host: str
    end: str
    started_at: datetime | None
    ended_at: datetime | None


class ReplicaLine(NamedTuple):
    """One replica with its latest run. `badge` is Unreachable while its host does not answer.

    `current`: the latest run, if it is of the present attempt. What few replicas of a page show is made when it is
    asked for.
    """

    name: str
    state: str
    restarts: int
    badge: Badge
    host: str
    latest: RunColumns | None
    current: RunColumns | None
    unreachable_since: datetime | None
    job_id: int
    shells: bool
    every: Sequence[RunColumns]
    hosts: Mapping[int, HostColumns]

    @property
    def run(self) -> str:
        return self.latest.pk if self.latest else ""

    @property
    def runs(self) -> tuple[RunLine, ...]:
        return tuple(_run_line(run, self.hosts[run.host_id]) for run in self.every)

    @property
    def host_url(self) -> str:
        return reverse("host", args=[self.current.host_id]) if self.current else ""

    @property
    def end(self) -> str:
        return ending(self.current) if self.current else ""

    @property
    def message(self) -> str:
        return self.current.message if self.current else ""

    @property
    def memory(self) -> str:
        return memory_limit(self.current) if self.current else ""

    @property
    def started_at(self) -> datetime | None:
        return self.current.started_at if self.current else None

    @property
    def ended_at(self) -> datetime | None:
        return self.current.ended_at if self.current else None

    @property
    def log_url(self) -> str:
        return reverse("log", args=[self.job_id, self.name])

    @property
    def raw_url(self) -> str:
        return f"/api/v1/jobs/{self.job_id}/replicas/{self.name}/log"

    @property
    def shell_url(self) -> str:
        run = self.current
        if not self.shells or run is None or run.phase != RunPhase.RUNNING:
            return ""
        return reverse("shell", args=[self.job_id, run.pk])


def memory_limit(run: Run | RunColumns) -> str:
    """Return the memory limit of the machine type, and whether the host enforces it."""
    if not run.memory_mb or run.memory_enforced is None:
        return ""
    held = (
        _("{size} of memory, enforced")
        if run.memory_enforced
        else _("{size} of memory, not enforced on this host")
    )
    return held.format(size=gib(run.memory_mb))


def ending(run: Run | RunColumns) -> str:
    """Say how a run ended. Return an empty text while it is not over."""
    if not RunPhase(run.phase).over:
        return ""
    if run.refusal:
        known = REFUSALS.get(run.refusal)
        return gettext(known) if known else _("not started: {why}").format(why=run.refusal.replace("_", " "))
    if run.oom:
        return gettext(OUT_OF_MEMORY.get(run.oom_sure, gettext_noop("ran out of memory")))
    if run.exit_code is not None:
        return _("exit code {code}").format(code=run.exit_code)
    if run.exit_signal is not None:
        return _("killed by {signal}").format(signal=_signal_name(run.exit_signal))
    return gettext(LOST.get(run.why, gettext_noop("ended; exit code unknown")))


def replica_lines(job: Job, shells: bool, name: str = "") -> Iterable[ReplicaLine]:
    """The replicas of a job, or the one with this name. `shells`: whether the person can open a shell in them."""
    named = {"name": name} if name else {}
    runs_of, hosts = _runs_of(job, name)
    rows = job.replicas.filter(**named).order_by("pool", "index")
    for pk, *columns in rows.values_list("pk", "name", "state", "restarts"):
        yield _replica_line(job, columns, runs_of[pk], hosts, shells)


def _runs_of(job: Job, name: str) -> tuple[Mapping[int, list[RunColumns]], Mapping[int, HostColumns]]:
    """The runs of each replica, the newest first, and their hosts. Many of them are on one host, so each is read
    once."""
    # A held run is a placement to which a replica is about to move. It is not shown as a run yet.
    rows = Run.objects.filter(job=job, held=False).order_by("-attempt", "-number")
    rows = rows.filter(replica__name=name) if name else rows
    found: dict[int, list[RunColumns]] = defaultdict(list)
    for row in rows.values_list(*RunColumns._fields):
        run = RunColumns(*row)
        found[run.replica_id].append(run)
    # A host that was taken out of service since then still has a name. The database looks up which they are: to write a
    # statement with a thousand numbers takes longer than its answer.
    of_hosts = (
        Host.every.filter(pk__in=rows.order_by().values("host"))
        .order_by()
        .values_list("pk", *HostColumns._fields)
    )
    return found, {pk: HostColumns(*columns) for pk, *columns in of_hosts}


def _replica_line(
    job: Job,
    columns: Sequence[Any],
    runs: Sequence[RunColumns],
    hosts: Mapping[int, HostColumns],
    shells: bool,
) -> ReplicaLine:
    name, state, restarts = columns
    run = runs[0] if runs else None
    # A replica that waits for its next attempt still has the run of the last one. Do not show that run's host and end.
    current = run if run is not None and run.attempt == job.attempt else None
    host = hosts[current.host_id] if current is not None else None
    unreachable = (
        current is not None
        and host is not None
        and current.phase != RunPhase.CLOSED
        and host.status in UNREACHABLE_STATUSES
    )
    return ReplicaLine(
        name=name,
        state=state,
        restarts=restarts,
        badge=badges.UNREACHABLE if unreachable else badges.REPLICA[state],
        host=host.name if host else "",
        latest=run,
        current=current,
        unreachable_since=host.status_since if host and unreachable else None,
        job_id=job.pk,
        shells=shells,
        every=runs,
        hosts=hosts,
    )


def _run_line(run: RunColumns, host: HostColumns) -> RunLine:
    label = _("attempt {attempt}, restart {number}") if run.number else _("attempt {attempt}")
    label = label.format(attempt=run.attempt, number=run.number)
    return RunLine(run.pk, label, host.name, ending(run), run.started_at, run.ended_at)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return _("signal {number}").format(number=number)
