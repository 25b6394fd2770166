"""The flags of a job: what is true beside its state, since when, and as text. Every decision makes them anew from the
facts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from jobs.rules.lifecycle import inactivity, unconnected
from jobs.rules.lifecycle.history_kinds import FLAGGED, HistoryKind
from jobs.rules.lifecycle.plan import HistoryEvent
from jobs.rules.lifecycle.retry_waits import until_text
from jobs.rules.lifecycle.states import FlagName, JobState, ReplicaState, RunPhase
from jobs.rules.lifecycle.verdict import JobCase
from jobs.rules.lifecycle.views import Flag, Outcome, ReplicaView, RunView
from jobs.rules.list_text import list_text

_DECIDED = {
    JobState.SUCCEEDED: "Succeeded",
    JobState.FAILED: "Failed",
    JobState.CANCELLED: "Cancelled",
    JobState.QUEUED: "To be run again",
}
# History has a line of its own about the same at the same moment: the restart, or the decision to stop.
_IN_OTHER_LINES = frozenset({FlagName.STOPPING, FlagName.RESTARTING})


def flags(
    case: JobCase,
    outcome: Outcome | None,
    states: Mapping[str, ReplicaState],
    moved: bool,
    waits: Mapping[str, datetime],
) -> tuple[Flag, ...]:
    """The flags that hold now. A flag that held before keeps its `since`. `moved`: this plan ends the job's moves.
    `waits`: until when the restarts of replicas wait.
    """
    old = {flag.name: flag.since for flag in case.view.flags}
    texts = {
        FlagName.UNREACHABLE: unreachable(case),
        FlagName.STOPPING: _stopping(case, outcome),
        FlagName.RESTARTING: "" if outcome else _restarting(case, states, waits),
        FlagName.MAINTENANCE: "" if outcome or moved else _maintenance(case),
        FlagName.CLEANING: _cleaning(case),
        FlagName.STUCK: _stuck(case),
        FlagName.STALLED: "" if outcome else inactivity.stalled(case),
        FlagName.IDLE: "" if outcome else inactivity.idle(case),
        FlagName.UNCONNECTED: "" if outcome else unconnected.while_running(case),
    }
    return tuple(Flag(name, old.get(name, case.now), text) for name, text in texts.items() if text)


def last_flags(case: JobCase, outcome: Outcome | None) -> tuple[Flag, ...]:
    """What stays beside the state of a job that is over: its programs never connected, and it succeeded."""
    text = unconnected.at_the_end(case) if outcome and outcome.state == JobState.SUCCEEDED else ""
    old = {flag.name: flag.since for flag in case.view.flags}
    name = FlagName.UNCONNECTED
    return (Flag(name, old.get(name, case.now), text),) if text else ()


def flag_events(before: Sequence[Flag], after: Sequence[Flag]) -> Iterator[HistoryEvent]:
    """History lines for the flags that came and went. Another text of the same flag is no event: it changes with
    every host that is late."""
    had, has = {flag.name for flag in before}, {flag.name for flag in after}
    for flag in after:
        if flag.name not in had and flag.name not in _IN_OTHER_LINES:
            yield HistoryEvent(HistoryKind.FLAG, FLAGGED, "", flag.name, flag.text)
    for flag in before:
        if flag.name not in has and flag.name not in _IN_OTHER_LINES:
            yield HistoryEvent(HistoryKind.FLAG, FLAGGED, flag.name, "", "It is over.")


def unreachable(case: JobCase) -> str:
    """Which hosts with open runs do not answer, and since when."""
    runs = [run for run in case.open if run.unreachable_since]
    hosts = {run.host: run.unreachable_since for run in runs}
    silent = [f"{host} since {since:%Y-%m-%d %H:%M:%S %Z}" for host, since in sorted(hosts.items()) if since]
    return f"No answer from {', '.join(silent)} ({_replicas(runs)})." if silent else ""


def _stopping(case: JobCase, outcome: Outcome | None) -> str:
    if outcome is None:
        return ""
    if not case.open:
        return (
            f"{_DECIDED[outcome.state]}; the rest of its log is being fetched." if case.logs_to_fetch else ""
        )
    why = f" {outcome.message}" if outcome.state == JobState.QUEUED else ""
    return f"{_DECIDED[outcome.state]}; {_count(len(case.open))} still to be stopped and proved clean.{why}"


def _restarting(case: JobCase, states: Mapping[str, ReplicaState], waits: Mapping[str, datetime]) -> str:
    coming = [
        replica.name
        for replica in case.view.replicas
        if states[replica.name] == ReplicaState.STARTING and _began_before(case, replica)
    ]
    found = [f"{name} (waits {until_text(waits[name])})" if name in waits else name for name in coming[:8]]
    return f"Being restarted: {', '.join(found)}." if found else ""


def _began_before(case: JobCase, replica: ReplicaView) -> bool:
    run = case.latest.get(replica.name)
    return bool(replica.restarts or replica.name in case.ends or (run and run.number))


def _maintenance(case: JobCase) -> str:
    """Which replicas move where; or, without a placement for them, which hosts they are to leave."""
    if case.held_runs:
        return f"{moves(case)}."
    leaving = {run.host: run for run in case.latest.values() if run.drain and run.phase != RunPhase.CLOSED}
    return " ".join(f"{run.drain}." for _, run in sorted(leaving.items())[:8])


def moves(case: JobCase) -> str:
    """`workerpool1-0 moves from gpu-01 to gpu-02: gpu-01 is being drained by alice`"""
    found = [
        f"{name} moves from {case.latest[name].host} to {held.host}" for name, held in case.held_runs.items()
    ]
    why = "; ".join(dict.fromkeys(held.held_why for held in case.held_runs.values() if held.held_why))
    return f"{list_text(found)}{f': {why}' if why else ''}"


def _cleaning(case: JobCase) -> str:
    runs = [run for run in case.open if run.phase == RunPhase.ENDED and run.unreachable_since is None]
    return f"Over, but not yet proved clean: {_replicas(runs)}." if runs else ""


def _stuck(case: JobCase) -> str:
    runs = [run for run in case.open if run.survivors]
    if not runs:
        return ""
    found = "; ".join(f"{run.survivors} of {run.replica} on {run.host}" for run in runs[:8])
    return f"Processes that cannot be killed: {found}."


def _replicas(runs: Iterable[RunView]) -> str:
    return list_text(sorted({run.replica for run in runs}))


def _count(runs: int) -> str:
    return "1 run is" if runs == 1 else f"{runs} runs are"
