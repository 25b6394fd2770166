"""Inactive runs: replicas that have stalled, and jobs whose GPUs are all idle. They get flags; nothing is stopped here.

A host that is unreachable says nothing about its runs, so neither flag is raised for a run whose host does not answer,
or which is not sampled.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from agents.infra.texts import moment, said
from jobs.rules.lifecycle.states import JobState, RunPhase
from jobs.rules.lifecycle.utilization import inactive_for
from jobs.rules.lifecycle.verdict import JobCase
from jobs.rules.lifecycle.views import RunView
from jobs.rules.list_text import list_text


def stalled(case: JobCase) -> str:
    """Replicas that run, but print nothing and use nothing for as long as the deployment's setting says."""
    after = case.view.stall_after_s
    if not after:
        return ""
    found = [run for run in _looked_at(case) if _still(case, run, run.active_at, after)]
    if not found:
        return ""
    since = [
        said("{name} since {time}", name=run.replica, time=moment(run.active_at))
        for run in found
        if run.active_at
    ]
    return said(
        "No output, and no CPU or GPU in use: {replicas}. It is not stopped for that.",
        replicas=list_text(since),
    )


def idle(case: JobCase) -> str:
    """All GPUs of the job at 0 % for as long as its project's rule says."""
    after, runs = case.view.idle_after_s, _on_gpus(case)
    if not after or not runs or case.view.state != JobState.RUNNING:
        return ""
    if not all(_still(case, run, run.gpu_active_at, after) for run in runs):
        return ""
    since = max(run.gpu_active_at for run in runs if run.gpu_active_at)
    return said("All its GPUs have been at 0 % since {time}.", time=moment(since))


def next_look(case: JobCase) -> datetime | None:
    """When one of these flags may begin to hold, if nothing happens until then."""
    return min((at for at in _moments(case) if at > case.now), default=None)


def _moments(case: JobCase) -> Iterator[datetime]:
    view = case.view
    if view.stall_after_s:
        for run in _looked_at(case):
            if run.active_at is not None:
                yield view.sure(run.active_at) + timedelta(seconds=view.stall_after_s)
    used = [view.sure(run.gpu_active_at) for run in _on_gpus(case) if run.gpu_active_at]
    if view.idle_after_s and used:
        yield max(used) + timedelta(seconds=view.idle_after_s)


def _looked_at(case: JobCase) -> list[RunView]:
    return [
        run
        for run in case.latest.values()
        if run.phase == RunPhase.RUNNING and run.unreachable_since is None and run.stop_wanted_at is None
    ]


def _on_gpus(case: JobCase) -> list[RunView]:
    return [run for run in case.latest.values() if run.gpus and not run.phase.over]


def _still(case: JobCase, run: RunView, since: datetime | None, after_s: float) -> bool:
    silent = run.unreachable_since is not None or run.phase != RunPhase.RUNNING
    sure = since and case.view.sure(since)
    found = None if silent else inactive_for(sure, run.sampled_at, case.now)
    return found is not None and found.total_seconds() >= after_s
