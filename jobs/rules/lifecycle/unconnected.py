"""Jobs whose replicas never connected to each other, although they look as if they were to train together.

Such programs train a model each, and the job succeeds: Accelerate without a launcher does so. Each host looks, a few
times a minute, whether the programs of a run have a connection to a peer (agents/runner/runs/peers.py). Nothing is
said if one replica has connected, or if one was not looked at: its host has an older runner, or the job is not of a
kind that trains together (rules/spec/launchers.py).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from jobs.rules.lifecycle.states import JobState, RunPhase
from jobs.rules.lifecycle.verdict import JobCase
from jobs.rules.lifecycle.views import RunView
from jobs.rules.spec.cluster_variables import TRAINER_POOLS
from jobs.rules.spec.launchers import never_connected


def while_running(case: JobCase) -> str:
    """For as long as the deployment's setting says, all replicas have run, each has done something, and none has
    connected."""
    at = next_look(case, also_past=True)
    if at is None or at > case.now:
        return ""
    after = timedelta(seconds=case.view.unconnected_after_s)
    if not all(run.active_at and case.now - run.active_at < after for run in _alone(case)):
        return ""  # an idle replica trains nothing: that is another flag
    return never_connected(case.view.spec)


def at_the_end(case: JobCase) -> str:
    """A job that ended sooner is told of when it has run for half of that time."""
    after = case.view.unconnected_after_s
    ran = [run.seconds or 0.0 for run in _alone(case)]
    return never_connected(case.view.spec) if after and ran and min(ran) >= after / 2 else ""


def next_look(case: JobCase, also_past: bool = False) -> datetime | None:
    """When the flag may begin to hold."""
    view = case.view
    if not view.unconnected_after_s or view.state != JobState.RUNNING or view.started_at is None:
        return None
    runs = _alone(case)
    if not runs or any(run.phase != RunPhase.RUNNING or run.unreachable_since for run in runs):
        return None
    # The latest of them may have been started again.
    began = max(view.sure(max(view.started_at, run.created_at)) for run in runs)
    at = began + timedelta(seconds=view.unconnected_after_s)
    return at if also_past or at > case.now else None


def _alone(case: JobCase) -> list[RunView]:
    """The latest runs of the trainers, if there are several and none of them has connected; else nothing."""
    names = [replica.name for replica in case.view.replicas if replica.pool in TRAINER_POOLS]
    runs = [case.latest[name] for name in names if name in case.latest]
    alone = len(runs) > 1 and len(runs) == len(names) and all(run.connected is False for run in runs)
    return runs if alone else []
