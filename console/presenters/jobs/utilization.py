"""What the replicas of a job use now, and for how long each has been quiet, so that a replica that hangs stands out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone
from django.utils.translation import ngettext

from console.presenters.badges import Badge
from console.presenters.jobs.charts import gib
from console.presenters.jobs.job_query import JobQuery
from console.presenters.jobs.replicas import ReplicaLine
from jobs.logs import last_printed
from jobs.models import Run, RunSample
from jobs.rules.lifecycle import quiet_replicas
from jobs.rules.lifecycle.states import RunPhase

FRESH = timedelta(seconds=45)
# Rows of a page of the table.
ROWS = 100
QUIETEST_FIRST = "silent"


@dataclass(frozen=True, slots=True)
class CurrentUse:
    """What a replica uses at the moment. `unknown` says why nothing is known.

    `quiet_since`: since when a running replica has printed nothing. `odd`: it is quiet for much longer than the others.
    """

    replica: str
    badge: Badge
    selected: bool
    printed_at: datetime | None
    quiet_since: datetime | None
    odd: bool = False
    unknown: str = ""
    cpu: str = ""
    cpu_share: int | None = None
    memory: str = ""
    gpu: str = ""
    gpu_share: int | None = None
    gpu_memory: str = ""


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
    """Return the panel. Makes four queries for any number of replicas."""
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
        gpus=any(line.gpu for line in lines),
        earlier=query.query_with(start=before) if start else None,
        later=query.query_with(start=str(start + ROWS)) if start + ROWS < len(lines) else None,
    )


def current_use(replicas: Sequence[ReplicaLine], at: datetime, chosen: str = "") -> list[CurrentUse]:
    """What each of these replicas uses now, in their order. Makes four queries for any number of them."""
    ids = [line.run for line in replicas if line.run]
    # One query: in_bulk() would make several for a thousand runs.
    runs = {run.pk: run for run in Run.objects.only("cpus", "phase", "started_at").filter(pk__in=ids)}
    printed = last_printed.last_printed(ids, at)
    fresh = RunSample.objects.filter(run__in=ids, step=10, at__gte=at - FRESH).order_by("at")
    latest = {row.run_id: row for row in fresh}
    quiet = {
        line.name: printed.get(line.run) or runs[line.run].started_at
        for line in replicas
        if line.run in runs and runs[line.run].phase == RunPhase.RUNNING
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
            **_sample_fields(runs.get(line.run), latest.get(line.run)),
        )
        for line in replicas
    ]


def _sample_fields(run: Run | None, row: RunSample | None) -> dict[str, Any]:
    if run is None or row is None:
        return {"unknown": _unknown(run)}
    percents = [load[0] for load in row.gpus if load[0] is not None]
    held = [load[1] for load in row.gpus if load[1] is not None]
    return {
        "cpu": f"{row.cpu:.1f} of {run.cpus:g} CPUs" if run.cpus else f"{row.cpu:.1f} CPUs",
        "cpu_share": round(100 * row.cpu / run.cpus) if run.cpus else None,
        "memory": gib(row.memory_mb),
        "gpu": ngettext("{number} GPU", "{number} GPUs", len(row.gpus)).format(number=len(row.gpus))
        if row.gpus
        else "",
        "gpu_share": round(sum(percents) / len(percents)) if percents else None,
        "gpu_memory": gib(sum(held)) if held else "",
    }


def _unknown(run: Run | None) -> str:
    if run is None or run.started_at is None and not RunPhase(run.phase).over:
        return "not started yet"
    return "not running any more" if RunPhase(run.phase).over else "nothing is known at the moment"
