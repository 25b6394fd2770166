"""The flags of a job: what is true beside its state, since when, and as text. Every decision makes them anew from the
facts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from agents.infra.texts import join, moment, said, said_of
from jobs.rules.lifecycle import inactivity, unconnected
from jobs.rules.lifecycle.history_kinds import FLAGGED, HistoryKind
from jobs.rules.lifecycle.plan import HistoryEvent
from jobs.rules.lifecycle.retry_waits import until_text
from jobs.rules.lifecycle.states import FlagName, JobState, ReplicaState, RunPhase
from jobs.rules.lifecycle.verdict import JobCase
from jobs.rules.lifecycle.views import Flag, Outcome, ReplicaView, RunView
from jobs.rules.list_text import list_text

_DECIDED = {
    JobState.SUCCEEDED: said("Succeeded"),
    JobState.FAILED: said("Failed"),
    JobState.CANCELLED: said("Cancelled"),
    JobState.QUEUED: said("To be run again"),
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
            yield HistoryEvent(HistoryKind.FLAG, FLAGGED, flag.name, "", said("It is over."))


def unreachable(case: JobCase) -> str:
    """Which hosts with open runs do not answer, and since when."""
    runs = [run for run in case.open if run.unreachable_since]
    hosts = {run.host: run.unreachable_since for run in runs}
    silent = [
        said("{name} since {time}", name=host, time=moment(since))
        for host, since in sorted(hosts.items())
        if since
    ]
    if not silent:
        return ""
    return said("No answer from {hosts} ({replicas}).", hosts=join(", ", silent), replicas=_replicas(runs))


def _stopping(case: JobCase, outcome: Outcome | None) -> str:
    if outcome is None:
        return ""
    decided = _DECIDED[outcome.state]
    if not case.open:
        if not case.logs_to_fetch:
            return ""
        return said("{decided}; the rest of its log is being fetched.", decided=decided)
    text = said_of(
        len(case.open),
        "{decided}; 1 run is still to be stopped and proved clean.",
        "{decided}; {number} runs are still to be stopped and proved clean.",
        decided=decided,
    )
    return join(" ", [text, outcome.message]) if outcome.state == JobState.QUEUED else text


def _restarting(case: JobCase, states: Mapping[str, ReplicaState], waits: Mapping[str, datetime]) -> str:
    coming = [
        replica.name
        for replica in case.view.replicas
        if states[replica.name] == ReplicaState.STARTING and _began_before(case, replica)
    ]
    found = [_with_wait(name, waits.get(name)) for name in coming[:8]]
    return said("Being restarted: {replicas}.", replicas=join(", ", found)) if found else ""


def _with_wait(name: str, until: datetime | None) -> str:
    return said("{replica} (waits {until})", replica=name, until=until_text(until)) if until else name


def _began_before(case: JobCase, replica: ReplicaView) -> bool:
    run = case.latest.get(replica.name)
    return bool(replica.restarts or replica.name in case.ends or (run and run.number))


def _maintenance(case: JobCase) -> str:
    """Which replicas move where; or, without a placement for them, which hosts they are to leave."""
    if case.held_runs:
        return said("{words}.", words=moves(case))
    leaving = {run.host: run for run in case.latest.values() if run.drain and run.phase != RunPhase.CLOSED}
    return join(" ", [said("{words}.", words=run.drain) for _, run in sorted(leaving.items())[:8]])


def moves(case: JobCase) -> str:
    """`workerpool1-0 moves from gpu-01 to gpu-02: gpu-01 is being drained by alice`"""
    found = [
        said(
            "{replica} moves from {host} to {new_host}",
            replica=name,
            host=case.latest[name].host,
            new_host=held.host,
        )
        for name, held in case.held_runs.items()
    ]
    whys = list(dict.fromkeys(held.held_why for held in case.held_runs.values() if held.held_why))
    moving = list_text(found)
    return said("{moves}: {why}", moves=moving, why=join("; ", whys)) if whys else moving


def _cleaning(case: JobCase) -> str:
    runs = [run for run in case.open if run.phase == RunPhase.ENDED and run.unreachable_since is None]
    return said("Over, but not yet proved clean: {replicas}.", replicas=_replicas(runs)) if runs else ""


def _stuck(case: JobCase) -> str:
    runs = [run for run in case.open if run.survivors]
    if not runs:
        return ""
    found = [
        said("{number} of {replica} on {host}", number=run.survivors, replica=run.replica, host=run.host)
        for run in runs[:8]
    ]
    return said("Processes that cannot be killed: {processes}.", processes=join("; ", found))


def _replicas(runs: Iterable[RunView]) -> str:
    return list_text(sorted({run.replica for run in runs}))
