"""Rows of hosts as frozen values for the pages, at a constant number of queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.urls import reverse
from django.utils import timezone

from agents import checklist, keys
from agents.hostkeys import fingerprint
from agents.models import Gpu, GpuState, Host, HostStatus
from console import access
from console.presenters import badges
from console.presenters.badges import Badge
from jobs.models import GpuClaim, Run
from jobs.rules.states import RunPhase

SHOWN_EVENTS = 30
SSH_ERROR = "The last SSH error, word for word"
UNUSABLE = "Why no job is placed on it"
LOCKED_OUT = frozenset({HostStatus.NEW, HostStatus.AUTH_FAILED})
# One line, safe to run twice, for people who are logged in on the host.
APPEND = (
    "mkdir -p -m 700 ~/.ssh && echo '{key}' >> ~/.ssh/authorized_keys && chmod 600 ~/.ssh/authorized_keys"
)


@dataclass(frozen=True, slots=True)
class HostRow:
    id: int
    url: str
    name: str
    badge: Badge
    since: datetime
    cordoned: bool
    closed: str
    cordon_message: str
    location: str
    address: str
    cpus: int
    memory_mb: int
    gpus_used: int
    gpus: int
    gpus_out: int
    models: str
    free_disk_mb: int | None
    runs: int
    error: str


@dataclass(frozen=True, slots=True)
class HostList:
    rows: tuple[HostRow, ...]
    up: int
    gpus: int
    gpus_used: int
    may_manage: bool


@dataclass(frozen=True, slots=True)
class CheckLine:
    """`tone` and `icon` as of a badge; `word` says the same to those who do not see them."""

    name: str
    word: str
    tone: str
    icon: str
    text: str
    fix: str


@dataclass(frozen=True, slots=True)
class GpuHolder:
    """Somebody whom we did not start, on a GPU."""

    pid: int
    user: str
    name: str
    since: datetime | None
    how: str


@dataclass(frozen=True, slots=True)
class GpuLine:
    """`badge`: it is kept out of use, or a run that is over is still being proved to be gone."""

    id: int
    index: int
    uuid: str
    model: str
    memory_mb: int
    accelerator_type: str
    present: bool
    held: bool
    run: str
    job_url: str
    badge: Badge | None
    since: datetime | None
    text: str
    holders: tuple[GpuHolder, ...]


@dataclass(frozen=True, slots=True)
class RunLine:
    id: str
    replica: str
    job_name: str
    job_url: str
    phase: str
    started_at: datetime | None


@dataclass(frozen=True, slots=True)
class EventLine:
    at: datetime
    kind: str
    text: str
    actor: str


@dataclass(frozen=True, slots=True)
class HostLive:
    """What changes while one looks at a host."""

    id: int
    name: str
    badge: Badge
    since: datetime
    retired: bool
    cordoned: bool
    closed_title: str
    cordon_message: str
    cordoned_by: str
    cordoned_at: datetime | None
    progress: str
    gone_by: str
    gone_at: datetime | None
    draining: bool
    running: int
    location: str
    login: str
    jump: str
    offered: str
    offered_at: str
    pinned: str
    accepted_by: str
    accepted_at: datetime | None
    changed: bool
    error: str
    error_title: str
    command: str
    checks: tuple[CheckLine, ...]
    checking: bool
    gpus: tuple[GpuLine, ...]
    runs: tuple[RunLine, ...]
    events: tuple[EventLine, ...]
    seen_at: datetime | None
    cpus: int
    memory_mb: int
    free_disk_mb: int | None
    may_manage: bool


def host_list(user: User) -> HostList:
    """Four queries, whatever the number of hosts."""
    hosts = access.visible(user, Host.objects.select_related("location").defer("checklist", "facts"))
    gpus = list(Gpu.objects.filter(present=True).values_list("host_id", "pk", "model", "state"))
    held = set(GpuClaim.objects.filter(released_at=None).values_list("gpu_id", flat=True))
    runs = Counter(Run.objects.filter(released_at=None).values_list("host_id", flat=True))
    rows = tuple(_row(host, [g for g in gpus if g[0] == host.pk], held, runs) for host in hosts)
    return HostList(
        rows=rows,
        up=sum(row.badge is badges.HOST[HostStatus.UP] for row in rows),
        gpus=sum(row.gpus for row in rows),
        gpus_used=sum(row.gpus_used for row in rows),
        may_manage=access.can(user, "manage", Host),
    )


def live(host: Host, user: User) -> HostLive:
    allowed = access.verbs(user, host)
    events = host.events.all()[:SHOWN_EVENTS]
    known = {str(row["name"]): row for row in host.checklist}
    # Whatever else happened to the host since: a key in place of an accepted one is never shown as a first one.
    changed = bool(host.offered_key and _pinned(host))
    runs = tuple(_runs(host, user))
    running = Run.objects.filter(host=host, released_at=None, held=False).count()
    return HostLive(
        id=host.pk,
        name=host.name,
        badge=badges.RETIRED if host.retired_at else badges.HOST[host.status],
        since=host.retired_at or host.status_since,
        retired=host.retired_at is not None,
        cordoned=host.cordoned,
        closed_title=closed_words(host, running).capitalize(),
        cordon_message=host.cordon_message,
        cordoned_by=host.cordoned_by,
        cordoned_at=host.cordoned_at,
        progress=_progress(host, running, user),
        gone_by=host.gone_by if host.gone_at else "",
        gone_at=host.gone_at,
        draining=host.drain_at is not None,
        running=running,
        location=host.location.name,
        login=f"{host.user}@{host.address}" + (f":{host.port}" if host.port != 22 else ""),
        jump=host.jump,
        offered=_fingerprint(host.offered_key),
        offered_at=host.offered_at,
        pinned=_fingerprint(_pinned(host)),
        accepted_by=host.key_accepted_by,
        accepted_at=host.key_accepted_at,
        changed=changed,
        error=host.last_error,
        error_title=UNUSABLE if host.status == HostStatus.UNUSABLE else SSH_ERROR,
        command=append_command() if host.status in LOCKED_OUT else "",
        checks=tuple(_checks(host, known)),
        checking=host.status == HostStatus.CHECKING,
        gpus=tuple(_gpus(host, user)),
        runs=runs,
        events=tuple(EventLine(e.at, e.kind.replace("_", " "), e.text, e.actor) for e in events),
        seen_at=host.seen_at,
        cpus=host.cpus,
        memory_mb=host.memory_mb,
        free_disk_mb=host.free_disk_mb,
        may_manage="manage" in allowed and host.retired_at is None,
    )


def closed_words(host: Host, runs: int) -> str:
    """What it means that this host takes no new jobs."""
    if host.drain_at is None:
        return "takes no new jobs"
    return "being emptied" if runs else "drained: nothing runs here"


def _progress(host: Host, running: int, user: User) -> str:
    """How far it is emptied, and for whom it waits."""
    if host.drain_at is None:
        return ""
    all_of = max(host.drain_runs, running)
    words = f"{all_of - running} of {all_of} replicas have left. " if all_of else ""
    late = host.drain_until is not None and host.drain_until <= timezone.now()
    if not running or host.drain_until is None:
        return words
    until = f"{host.drain_until:%Y-%m-%d %H:%M:%S %Z}"
    if not late:
        after = ", then what is left goes back to the queue" if host.drain_force else ""
        return f"{words}Until {until}{after}."
    return f"{words}Overdue since {until}: waits for {_left(host, user)}."


def _left(host: Host, user: User) -> str:
    """The jobs that are still there: by name for whoever may see them, by number of the others."""
    here = Run.objects.filter(host=host, released_at=None, held=False).order_by()
    seen = set(access.visible(user, here).values_list("job", flat=True))
    others = here.exclude(job__in=seen).values("job").distinct().count()
    told = [f"job {', '.join(str(pk) for pk in sorted(seen)[:8])}"] if seen else []
    if others:
        told.append(
            f"{others} job{'s' if others > 1 else ''} of {'other projects' if seen else 'a project that is not yours'}"
        )
    return " and ".join(told)


def append_command() -> str:
    return APPEND.format(key=keys.public_line().strip())


def _pinned(host: Host) -> str:
    """The pinned key that the offered one would replace: of the jump that offered it, or of the host itself."""
    return str(host.jump_keys.get(host.offered_at, "")) if host.offered_at else host.pinned_key


def _fingerprint(line: str) -> str:
    return fingerprint(line) if line else ""


def _row(host: Host, gpus: list[tuple[int, int, str, str]], held: set[int], runs: Counter[int]) -> HostRow:
    kinds = Counter(model for _, _, model, _ in gpus)
    return HostRow(
        id=host.pk,
        url=reverse("host", args=[host.pk]),
        name=host.name,
        badge=badges.HOST[host.status],
        since=host.status_since,
        cordoned=host.cordoned,
        closed=closed_words(host, runs[host.pk]),
        cordon_message=host.cordon_message,
        location=host.location.name,
        address=f"{host.user}@{host.address}" + (f":{host.port}" if host.port != 22 else ""),
        cpus=host.cpus,
        memory_mb=host.memory_mb,
        gpus_used=sum(pk in held for _, pk, _, _ in gpus),
        gpus=len(gpus),
        gpus_out=sum(state != GpuState.OK for _, _, _, state in gpus),
        models=", ".join(f"{count} × {model}" for model, count in kinds.items()),
        free_disk_mb=host.free_disk_mb,
        runs=runs[host.pk],
        error=host.last_error,
    )


def _checks(host: Host, known: Mapping[str, Mapping[str, object]]) -> Iterable[CheckLine]:
    """Every line of the list, those too that the check has not come to yet."""
    going = host.status == HostStatus.CHECKING
    for name in checklist.ORDER:
        row = known.get(name)
        if row is None:
            word, icon = ("being checked", "ring") if going else ("not known yet", "dash")
            yield CheckLine(name, word, "wait", icon, "", "")
            continue
        tone, word, icon = {
            True: ("good", "fine", "tick"),
            False: ("bad", "not right", "cross"),
        }.get(
            row["ok"],
            ("warn", "worth knowing", "note") if row["fix"] else ("still", "for information", "note"),
        )  # type: ignore[call-overload]
        yield CheckLine(name, word, tone, icon, str(row["text"]), str(row["fix"]))


def _gpus(host: Host, user: User) -> Iterable[GpuLine]:
    claims = GpuClaim.objects.filter(released_at=None, gpu__host=host)
    held = {gpu: (run, phase) for gpu, run, phase in claims.values_list("gpu_id", "run_id", "run__phase")}
    jobs = dict(_held(host, user).values_list("pk", "job_id"))
    for gpu in host.gpus.all():
        run, phase = held.get(gpu.pk, ("", ""))
        cleaning = phase == RunPhase.ENDED and gpu.state == GpuState.OK
        yield GpuLine(
            id=gpu.pk,
            index=gpu.index,
            uuid=gpu.uuid,
            model=gpu.model,
            memory_mb=gpu.memory_mb,
            accelerator_type=gpu.accelerator_type,
            present=gpu.present,
            held=bool(run),
            run=run if run in jobs else "",
            job_url=reverse("job", args=[jobs[run]]) if run in jobs else "",
            badge=badges.GPU_CLEANING if cleaning else badges.GPU.get(gpu.state),
            since=gpu.state_since,
            text=gpu.state_text,
            holders=tuple(_gpu_holder(row) for row in gpu.holders),
        )


def _gpu_holder(row: Mapping[str, Any]) -> GpuHolder:
    since = datetime.fromisoformat(row["since"]) if row["since"] else None
    how = {"open": "has its device open", "lock": "holds its lock", "compute": "computes"}.get(row["how"], "")
    return GpuHolder(row["pid"], row["user"], row["name"], since, how)


def _runs(host: Host, user: User) -> Iterable[RunLine]:
    held = _held(host, user).select_related("job", "replica")
    for run in held.only("id", "phase", "started_at", "replica__name", "job__display_name"):
        url = reverse("job", args=[run.job_id])
        yield RunLine(run.pk, run.replica.name, run.job.display_name, url, run.phase, run.started_at)


def _held(host: Host, user: User) -> QuerySet[Run]:
    """Hosts belong to no project, what runs on them does: others see that something is held, never by whom."""
    return access.visible(user, Run.objects.filter(host=host, released_at=None))
