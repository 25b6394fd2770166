"""The GPUs of one host and the processes on them, as frozen values for pages."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet
from django.urls import reverse
from django.utils.translation import gettext as _

from agents.infra.sentences import shown
from agents.models import GpuState, Host
from console.auth import access
from console.presenters import badges
from console.presenters.badges import Badge
from console.presenters.hosts.job_ids import JobIdFilter
from jobs.models import GpuClaim, Run
from jobs.projects import claim_holders
from jobs.rules.lifecycle.states import RunPhase


@dataclass(frozen=True, slots=True)
class GpuHolder:
    """A process on a GPU that Trainyard did not start."""

    pid: int
    user: str
    name: str
    since: datetime | None
    how: str


@dataclass(frozen=True, slots=True)
class GpuLine:
    """One GPU. `badge` is set if no job may use it, or if its ended run is not yet known to be gone."""

    id: int
    index: int
    uuid: str
    model: str
    memory_mb: int
    accelerator_type: str
    present: bool
    held: bool
    run: str
    holder: str
    job_url: str
    badge: Badge | None
    since: datetime | None
    text: str
    holders: tuple[GpuHolder, ...]


def gpus(host: Host, user: User) -> Iterable[GpuLine]:
    claims = GpuClaim.objects.filter(released_at=None, gpu__host=host)
    held = {gpu: (run, phase) for gpu, run, phase in claims.values_list("gpu_id", "run_id", "run__phase")}
    seen = held_runs(host, user).values_list("pk", "job_id", "job__display_name", "replica__name")
    jobs = {run: (job, f"{name} {replica}") for run, job, name, replica in seen}
    forgotten = claim_holders.gpus_of_strays()
    of_host = list(host.gpus.all())
    ids = JobIdFilter(user, (gpu.state_text for gpu in of_host))
    for gpu in of_host:
        run, phase = held.get(gpu.pk, ("", ""))
        badge = badges.GPU.get(gpu.state)
        if gpu.uuid in forgotten:
            badge = badges.GPU_FORGOTTEN
        elif phase == RunPhase.ENDED and gpu.state == GpuState.OK:
            badge = badges.GPU_CLEANING
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
            holder=jobs[run][1] if run in jobs else "",
            job_url=reverse("job", args=[jobs[run][0]]) if run in jobs else "",
            badge=badge,
            since=gpu.state_since,
            text=ids.clean(shown(gpu.state_text)),
            holders=tuple(_gpu_holder(row) for row in gpu.holders),
        )


def held_runs(host: Host, user: User) -> QuerySet[Run]:
    """Return the runs on the host that the person may see.

    A host belongs to no project, but its runs do. Other people see that a GPU is held, never by which job.
    """
    return access.visible(user, Run.objects.filter(on_machine(host), released_at=None))


def on_machine(host: Host) -> Q:
    """The runs on the host; of a machine, also those under its further logins."""
    return on_machines([host.pk])


def on_machines(hosts: Collection[int]) -> Q:
    """The same for several. Their logins are few and found first: with a condition on two tables PostgreSQL would read
    all runs that hold something."""
    return Q(host__in=Host.every.filter(Q(pk__in=hosts) | Q(machine__in=hosts)).order_by().values("pk"))


def _gpu_holder(row: Mapping[str, Any]) -> GpuHolder:
    since = datetime.fromisoformat(row["since"]) if row["since"] else None
    ways = {"open": _("has its device open"), "lock": _("holds its lock"), "compute": _("computes")}
    how = ways.get(row["how"], "")
    return GpuHolder(row["pid"], row["user"], row["name"], since, how)
