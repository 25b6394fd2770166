"""The list of hosts, as frozen values for its page."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import User
from django.urls import reverse

from agents.models import Gpu, GpuState, Host, HostStatus
from console.auth import access
from console.presenters import badges
from console.presenters.badges import Badge
from jobs.lifecycle.host_maintenance import maintenance_of
from jobs.models import GpuClaim, Run


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


def host_list(user: User) -> HostList:
    """Return all hosts. Makes four queries for any number of hosts."""
    hosts = access.visible(
        user, Host.objects.select_related("location", "maintenance").defer("checklist", "facts")
    )
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


def closed_text(host: Host, runs: int) -> str:
    """Say why this host takes no new jobs: it is cordoned, being drained, or drained."""
    if maintenance_of(host).drain_at is None:
        return "takes no new jobs"
    return "being drained" if runs else "drained: nothing runs here"


def _row(host: Host, gpus: list[tuple[int, int, str, str]], held: set[int], runs: Counter[int]) -> HostRow:
    kinds = Counter(model for _, _, model, _ in gpus)
    return HostRow(
        id=host.pk,
        url=reverse("host", args=[host.pk]),
        name=host.name,
        badge=badges.HOST[host.status],
        since=host.status_since,
        cordoned=maintenance_of(host).cordoned,
        closed=closed_text(host, runs[host.pk]),
        cordon_message=maintenance_of(host).cordon_message,
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
