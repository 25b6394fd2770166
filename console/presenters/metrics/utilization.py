"""What the replicas of a job use now, and for how long each has been quiet, so that a replica that hangs stands out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import Case, F, JSONField, When
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from agents.infra.sql import Parameter, SelectStatement
from console.presenters import sizes
from console.presenters.badges import Badge
from console.presenters.jobs.job_query import JobQuery
from console.presenters.jobs.replicas import ReplicaLine, RunColumns
from console.presenters.metrics.charts import gib
from jobs.logs import last_printed
from jobs.models import RunSample
from jobs.rules.lifecycle import quiet_replicas
from jobs.rules.lifecycle.states import RunPhase
from jobs.rules.lifecycle.utilization import of_all_gpus

FRESH = timedelta(seconds=45)
# Rows of a page of the table.
ROWS = 100
QUIETEST_FIRST = "silent"
_newest = SelectStatement(
    lambda: (
        RunSample.objects.filter(run__among=Parameter("runs"), step=10, at__gte=Parameter("since"))
        .order_by("at")
        # The list of GPUs is read only where an older version stored nothing else.
        .annotate(old=Case(When(gpu_count__isnull=True, then=F("gpus")), output_field=JSONField()))
        .values_list("run", "cpu", "memory_mb", "gpu_count", "gpu_load", "gpu_memory_mb", "old")
    )
)


class _Sample(NamedTuple):
    run: str
    cpu: float
    memory_mb: int | None
    gpu_count: int
    gpu_load: float | None
    gpu_memory_mb: int | None


class CurrentUse(NamedTuple):
    """What a replica uses at the moment. `unknown` says why nothing is known; then the others are empty.

    `quiet_since`: since when a running replica has printed nothing. `odd`: it is quiet for much longer than the others.
    The words are made when they are asked for: a page shows those of few replicas.
    """

    replica: str
    badge: Badge
    selected: bool
    printed_at: datetime | None
    quiet_since: datetime | None
    odd: bool
    run: RunColumns | None
    sample: _Sample | None

    @property
    def unknown(self) -> str:
        return _unknown(self.run) if self.sample is None else ""

    @property
    def cpu(self) -> str:
        return _cpu(self.sample.cpu, self.run.cpus) if self.sample and self.run else ""

    @property
    def cpu_share(self) -> int | None:
        if self.sample is None or self.run is None or not self.run.cpus:
            return None
        return round(100 * self.sample.cpu / self.run.cpus)

    @property
    def memory(self) -> str:
        return gib(self.sample.memory_mb) if self.sample else ""

    @property
    def has_gpus(self) -> bool:
        return self.sample is not None and self.sample.gpu_count > 0

    @property
    def gpu(self) -> str:
        count = self.sample.gpu_count if self.sample else 0
        return ngettext("{number} GPU", "{number} GPUs", count).format(number=count) if count else ""

    @property
    def gpu_share(self) -> int | None:
        load = self.sample.gpu_load if self.sample else None
        return round(load) if load is not None else None

    @property
    def gpu_memory(self) -> str:
        return gib(self.sample.gpu_memory_mb) if self.sample else ""


@dataclass(frozen=True, slots=True)
class UtilizationPanel:
    """`odd`: the unusually quiet lines. `sorted`: the longest quiet replica is first, not the job's order.

    `gpus`: whether a replica holds GPUs; if none does, the page has no columns for GPUs. `now` are the lines of this
    page of the table; `earlier`, `later`: the queries of the pages beside it, or None.
    """

    now: tuple[CurrentUse, ...]
    odd: tuple[CurrentUse, ...]
    sorted: bool
    gpus: bool
    earlier: str | None
    later: str | None


def utilization(replicas: Sequence[ReplicaLine], query: JobQuery) -> UtilizationPanel:
    """Return the panel. Makes three queries for any number of replicas."""
    at = timezone.now()
    lines = current_use(replicas, at, query.replica)
    if query.sort == QUIETEST_FIRST:
        lines.sort(key=lambda line: (line.quiet_since is None, line.quiet_since or at))
    start = min(int(query.start or 0), len(lines))
    before = str(start - ROWS) if start > ROWS else ""
    return UtilizationPanel(
        now=tuple(lines[start : start + ROWS]),
        odd=tuple(line for line in lines if line.odd),
        sorted=query.sort == QUIETEST_FIRST,
        gpus=any(line.has_gpus for line in lines),
        earlier=query.query_with(start=before) if start else None,
        later=query.query_with(start=str(start + ROWS)) if start + ROWS < len(lines) else None,
    )


def current_use(replicas: Sequence[ReplicaLine], at: datetime, chosen: str = "") -> list[CurrentUse]:
    """What each of these replicas uses now, in their order. Makes three queries for any number of them."""
    runs = {line.name: line.latest for line in replicas if line.latest}
    ids = [run.pk for run in runs.values()]
    printed = last_printed.last_printed(ids, at)
    latest = {sample.run: sample for sample in _samples(ids, at)}
    quiet = {
        name: printed.get(run.pk) or run.started_at
        for name, run in runs.items()
        if run.phase == RunPhase.RUNNING
    }
    odd = quiet_replicas.unusually_quiet(
        {name: (at - since).total_seconds() for name, since in quiet.items() if since}
    )
    return [
        CurrentUse(
            replica=line.name,
            badge=line.badge,
            selected=line.name == chosen,
            printed_at=printed.get(line.run),
            quiet_since=quiet.get(line.name),
            odd=line.name in odd,
            run=line.latest,
            sample=latest.get(line.run),
        )
        for line in replicas
    ]


def _samples(runs: Sequence[str], at: datetime) -> Iterator[_Sample]:
    """The newest samples of these runs, in the order of their times."""
    rows = _newest(runs=runs, since=at - FRESH) if runs else []
    for run, cpu, memory, count, load, held, gpus in rows:
        if count is None:
            load, held, *_ = of_all_gpus(gpus, None, None)
        yield _Sample(run, cpu, memory, len(gpus) if count is None else count, load, held)


def _cpu(used: float, limit: float) -> str:
    if limit:
        return _("{used} of {limit} CPUs").format(
            used=sizes.decimal(used), limit=sizes.localized(f"{limit:g}")
        )
    return _("{number} CPUs").format(number=sizes.decimal(used))


def _unknown(run: RunColumns | None) -> str:
    if run is None or run.started_at is None and not RunPhase(run.phase).over:
        return _("not started yet")
    return _("not running any more") if RunPhase(run.phase).over else _("nothing is known at the moment")
