"""The replicas of a job with their runs, as frozen values for pages."""

from __future__ import annotations

import signal
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.urls import reverse
from django.utils.translation import gettext, gettext_noop
from django.utils.translation import gettext as _

from agents.models import Host, HostStatus
from console.presenters import badges
from console.presenters.badges import Badge
from console.presenters.jobs.charts import gib
from jobs.models import Job, Replica, Run
from jobs.rules.lifecycle.states import RunPhase

# What is shown of a run. It has many more columns, and a job a thousand replicas.
RUN_COLUMNS = (
    *("attempt", "number", "phase", "host_id", "replica_id", "message", "memory_mb", "memory_enforced"),
    *("refusal", "oom", "oom_sure", "exit_code", "exit_signal", "why", "started_at", "ended_at"),
)
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


@dataclass(frozen=True, slots=True)
class RunLine:
    id: str
    label: str
    host: str
    end: str
    started_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class ReplicaLine:
    """One replica with its latest run. `badge` is Unreachable while its host does not answer."""

    name: str
    state: str
    badge: Badge
    host: str
    host_url: str
    run: str
    runs: tuple[RunLine, ...]
    restarts: int
    end: str
    message: str
    memory: str
    started_at: datetime | None
    ended_at: datetime | None
    unreachable_since: datetime | None
    log_url: str
    raw_url: str
    shell_url: str


def memory_limit(run: Run) -> str:
    """Return the memory limit of the machine type, and whether the host enforces it."""
    if not run.memory_mb or run.memory_enforced is None:
        return ""
    held = (
        _("{size} of memory, enforced")
        if run.memory_enforced
        else _("{size} of memory, not enforced on this host")
    )
    return held.format(size=gib(run.memory_mb))


def ending(run: Run) -> str:
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
    runs_of = _runs_of(job, name)
    for replica in job.replicas.filter(**named).order_by("pool", "index"):
        yield _replica_line(job, replica, runs_of[replica.pk], shells)


def _runs_of(job: Job, name: str) -> dict[int, list[Run]]:
    """The runs of each replica, the newest first. Many of them are on one host, so each host is read once."""
    # A held run is a placement to which a replica is about to move. It is not shown as a run yet.
    rows = Run.objects.filter(job=job, held=False).only(*RUN_COLUMNS).order_by("-attempt", "-number")
    rows = rows.filter(replica__name=name) if name else rows
    found: dict[int, list[Run]] = defaultdict(list)
    for run in rows:
        found[run.replica_id].append(run)
    shown = {run.host_id for runs in found.values() for run in runs}
    # A host that was taken out of service since then still has a name.
    rows_of_hosts = Host.every.only("name", "status", "status_since").filter(pk__in=shown)
    hosts = {host.pk: host for host in rows_of_hosts}
    for runs in found.values():
        for run in runs:
            run.host = hosts[run.host_id]
    return found


def _replica_line(job: Job, replica: Replica, runs: list[Run], shells: bool) -> ReplicaLine:
    run = runs[0] if runs else None
    # A replica that waits for its next attempt still has the run of the last one. Do not show that run's host and end.
    current = run if run is not None and run.attempt == job.attempt else None
    unreachable = (
        current is not None
        and current.phase != RunPhase.CLOSED
        and current.host.status in UNREACHABLE_STATUSES
    )
    running = current is not None and current.phase == RunPhase.RUNNING
    return ReplicaLine(
        name=replica.name,
        state=replica.state,
        badge=badges.UNREACHABLE if unreachable else badges.REPLICA[replica.state],
        host=current.host.name if current else "",
        host_url=reverse("host", args=[current.host_id]) if current else "",
        run=run.pk if run else "",
        runs=tuple(_run_line(row) for row in runs),
        restarts=replica.restarts,
        end=ending(current) if current else "",
        message=current.message if current else "",
        memory=memory_limit(current) if current else "",
        started_at=current.started_at if current else None,
        ended_at=current.ended_at if current else None,
        unreachable_since=current.host.status_since if current and unreachable else None,
        log_url=reverse("log", args=[job.pk, replica.name]),
        raw_url=f"/api/v1/jobs/{job.pk}/replicas/{replica.name}/log",
        shell_url=reverse("shell", args=[job.pk, current.pk]) if current and running and shells else "",
    )


def _run_line(run: Run) -> RunLine:
    label = _("attempt {attempt}, restart {number}") if run.number else _("attempt {attempt}")
    label = label.format(attempt=run.attempt, number=run.number)
    return RunLine(run.pk, label, run.host.name, ending(run), run.started_at, run.ended_at)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return _("signal {number}").format(number=number)
