"""Rows of jobs as frozen values for the pages. Every function here costs the same number of queries for one row as for
a thousand."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Prefetch
from django.urls import reverse

from agents.models import HostStatus
from console import access
from console.presenters import badges
from console.presenters.badges import Badge
from console.presenters.last_words import LastWords, last_words
from console.presenters.timeline import Again, Chosen, Timeline, started_again, timeline
from console.presenters.use import Use, use
from jobs import directories
from jobs.models import Job, Replica, Run
from jobs.rules.advice import Advice
from jobs.rules.order import PRIORITIES
from jobs.rules.retry import CANCELLED_TEXT
from jobs.rules.states import TERMINAL, FlagName, JobState, RunPhase

EVERYTHING = Chosen()
SILENT = frozenset({HostStatus.UNREACHABLE, HostStatus.AUTH_FAILED, HostStatus.BLOCKED})
LOST = {
    "lost": "lost: the host no longer had the process",
    "reboot": "lost: the host was restarted",
    "tombstone": "never started",
}
REFUSALS = {
    "gpu_busy": "not started: a GPU was in use",
    "port_taken": "not started: its port was taken",
    "disk_full": "not started: the host's disk is full",
    "exec_failed": "not started: the command could not be executed",
    "bad_order": "not started: the host did not understand the order",
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
    """One replica with its latest run. `badge` says Unreachable while its host does not answer."""

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


@dataclass(frozen=True, slots=True)
class FlagLine:
    word: str
    text: str
    since: datetime | None


@dataclass(frozen=True, slots=True)
class JobLive:
    """What changes while one looks at a job: the same for the first paint and for every update."""

    id: int
    name: str
    owner: str
    url: str
    badge: Badge
    terminal: bool
    since: datetime
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    attempt: int
    reason: str
    starts_by: datetime | None
    again: Again | None
    error: str
    flags: tuple[FlagLine, ...]
    cancelled: bool
    cancel_by: str
    cancel_at: datetime | None
    kill_at: datetime | None
    may_cancel: bool
    may_delete: bool
    may_clone: bool
    web_access: bool
    replicas: tuple[ReplicaLine, ...]
    tally: tuple[tuple[Badge, int], ...]
    timeline: Timeline
    last_words: LastWords | None
    use: Use


@dataclass(frozen=True, slots=True)
class PoolLine:
    name: str
    count: int
    machine: str
    command: str
    env: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class JobPage:
    """The parts that never change, around the live one."""

    id: int
    name: str
    resource: str
    location: str
    labels: tuple[tuple[str, str], ...]
    timeout: timedelta | None
    priority: str
    spot: bool
    pools: tuple[PoolLine, ...]
    advice: tuple[Advice, ...]
    document: str
    live: JobLive


def live(job: Job, user: User, chosen: Chosen = EVERYTHING) -> JobLive:
    """So many queries for one replica as for a thousand; of a failed job, three more for its last words."""
    allowed = access.verbs(user, job)
    replicas = tuple(_replica_lines(job, "shell" in allowed))
    terminal = job.state in TERMINAL
    return JobLive(
        id=job.pk,
        name=job.display_name,
        owner=job.owner_name,
        url=reverse("job", args=[job.pk]),
        badge=badges.JOB[job.state],
        terminal=terminal,
        since=_since(job),
        created_at=job.created_at,
        started_at=job.started_at,
        ended_at=job.ended_at,
        attempt=job.attempt,
        reason=job.reason,
        starts_by=job.earliest_start_at,
        again=started_again(job),
        error=error_words(job),
        flags=tuple(_flag(flag) for flag in job.flags),
        cancelled=job.state == JobState.CANCELLED and job.cancel_requested_at is not None,
        cancel_by=job.cancel_requested_by,
        cancel_at=job.cancel_requested_at,
        kill_at=_kill_at(job),
        may_cancel="cancel" in allowed and not terminal and job.state != JobState.CANCELLING,
        may_delete="delete" in allowed and terminal,
        may_clone="submit" in allowed,
        web_access=_web_access(job),
        replicas=replicas,
        tally=_tally(replicas),
        timeline=timeline(job, (line.name for line in replicas), chosen),
        last_words=last_words(job) if "see_log" in allowed else None,
        use=use(job, [(line.name, line.run) for line in replicas], chosen.use, chosen.span),
    )


def page(job: Job, user: User, chosen: Chosen = EVERYTHING) -> JobPage:
    spec: Mapping[str, object] = job.spec
    document = {"displayName": job.display_name, "jobSpec": spec}
    if job.labels:
        document["labels"] = job.labels
    return JobPage(
        id=job.pk,
        name=job.display_name,
        resource=f"projects/{job.project.name}/locations/{job.location_name}/customJobs/{job.pk}",
        location=job.location_name,
        labels=tuple(sorted(job.labels.items())),
        timeout=_timeout(job),
        priority=next((word for word, worth in PRIORITIES.items() if worth == job.priority), "normal"),
        spot=job.spot,
        pools=tuple(_pools(job)),
        advice=directories.advice_of(job),
        document=json.dumps(document, indent=2, ensure_ascii=False),
        live=live(job, user, chosen),
    )


OOM_SURE = {
    "certain": " (certain: its own cgroup counted it)",
    "likely": " (likely: its host counted a kill just then)",
}


def memory_limit(run: Run) -> str:
    """What its machine type allows it to use, and whether its host holds it to that."""
    if not run.memory_mb or run.memory_enforced is None:
        return ""
    held = "enforced" if run.memory_enforced else "not enforced on this host"
    return f"{run.memory_mb / 1024:.1f} GiB of memory, {held}"


def ending(run: Run) -> str:
    """How a run ended, in words; empty while it goes on."""
    if not RunPhase(run.phase).over:
        return ""
    if run.refusal:
        return REFUSALS.get(run.refusal, f"not started: {run.refusal.replace('_', ' ')}")
    if run.oom:
        return f"ran out of memory{OOM_SURE.get(run.oom_sure, '')}"
    if run.exit_code is not None:
        return f"exit code {run.exit_code}"
    if run.exit_signal is not None:
        return f"killed by {_signal_name(run.exit_signal)}"
    return LOST.get(run.why, "ended; exit code unknown")


def _replica_lines(job: Job, may_shell: bool) -> Iterable[ReplicaLine]:
    # A place to which a replica is about to move is no run of it yet.
    runs = (
        Run.objects.filter(held=False)
        .select_related("host")
        .defer("order", "gpu_uuids", "survivors", "host__checklist", "host__facts")
    )
    rows = job.replicas.prefetch_related(Prefetch("runs", runs.order_by("-attempt", "-number")))
    shells = may_shell and _web_access(job) and job.state not in TERMINAL
    for replica in rows.order_by("pool", "index"):
        yield _replica_line(job, replica, list(replica.runs.all()), shells)


def _replica_line(job: Job, replica: Replica, runs: list[Run], shells: bool) -> ReplicaLine:
    run = runs[0] if runs else None
    # A replica that waits for its next attempt still has the run of the last one; its host and end belong to that.
    current = run if run is not None and run.attempt == job.attempt else None
    silent = current is not None and current.phase != RunPhase.CLOSED and current.host.status in SILENT
    running = current is not None and current.phase == RunPhase.RUNNING
    return ReplicaLine(
        name=replica.name,
        state=replica.state,
        badge=badges.UNREACHABLE if silent else badges.REPLICA[replica.state],
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
        unreachable_since=current.host.status_since if current and silent else None,
        log_url=reverse("log", args=[job.pk, replica.name]),
        raw_url=f"/api/v1/jobs/{job.pk}/replicas/{replica.name}/log",
        shell_url=reverse("shell", args=[job.pk, current.pk]) if current and running and shells else "",
    )


def _run_line(run: Run) -> RunLine:
    restart = f", restart {run.number}" if run.number else ""
    return RunLine(
        run.pk, f"attempt {run.attempt}{restart}", run.host.name, ending(run), run.started_at, run.ended_at
    )


def _flag(flag: Mapping[str, str]) -> FlagLine:
    name = str(flag.get("flag") or flag.get("name") or "")
    since = flag.get("since")
    word = FlagName(name).value.capitalize() if name in FlagName.__members__ else name
    return FlagLine(word, str(flag.get("text", "")), datetime.fromisoformat(since) if since else None)


def _tally(replicas: tuple[ReplicaLine, ...]) -> tuple[tuple[Badge, int], ...]:
    counts: dict[Badge, int] = {}
    for replica in replicas:
        counts[replica.badge] = counts.get(replica.badge, 0) + 1
    return tuple(counts.items())


def _since(job: Job) -> datetime:
    at = job.transitions.filter(subject="job").order_by("-id").values_list("at", flat=True).first()
    return at or job.created_at


def error_words(job: Job) -> str:
    """Vertex's one-word message of a cancelled job says what the state says already; that a job is to be run again is
    no error, and why is said by its flag."""
    said = job.state == JobState.CANCELLED and job.error_message == CANCELLED_TEXT
    return "" if said or job.outcome == JobState.QUEUED else job.error_message


def _kill_at(job: Job) -> datetime | None:
    """When the grace of a cancelled job is over at the latest, seen from here."""
    if job.state != JobState.CANCELLING or job.cancel_requested_at is None:
        return None
    return job.cancel_requested_at + timedelta(seconds=settings.TRAINYARD.grace_s)


def _web_access(job: Job) -> bool:
    return bool(job.spec.get("enableWebAccess"))


def _timeout(job: Job) -> timedelta | None:
    written = str((job.spec.get("scheduling") or {}).get("timeout", ""))
    return timedelta(seconds=float(written[:-1])) if written.endswith("s") else None


def _pools(job: Job) -> Iterable[PoolLine]:
    for number, pool in enumerate(job.spec.get("workerPoolSpecs", [])):
        if not pool:
            continue
        container = pool.get("containerSpec", {})
        argv = [*container.get("command", []), *container.get("args", [])]
        yield PoolLine(
            name=f"workerpool{number}",
            count=int(pool.get("replicaCount", 1)),
            machine=_machine(pool.get("machineSpec", {})),
            command=_command(argv),
            env=tuple((pair["name"], pair.get("value", "")) for pair in container.get("env", [])),
        )


def _machine(machine: Mapping[str, object]) -> str:
    parts = []
    if machine.get("acceleratorCount"):
        parts.append(f"{machine['acceleratorCount']} × {machine.get('acceleratorType')}")
    if machine.get("machineType"):
        parts.append(str(machine["machineType"]))
    return ", ".join(parts) or "any host"


def _command(argv: list[str]) -> str:
    """A script as it was typed; anything else one argument a line, as JSON, so that spaces show."""
    if len(argv) == 3 and argv[0] in ("bash", "python3") and argv[1] == "-c":
        return f"# {argv[0]}\n{argv[2]}"
    return " ".join(arg if arg.isprintable() and " " not in arg and arg else json.dumps(arg) for arg in argv)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
