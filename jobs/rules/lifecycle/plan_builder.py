"""What a plan will hold, collected while decide.py decides."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from agents.infra.texts import said
from jobs.rules.lifecycle import retry, retry_waits
from jobs.rules.lifecycle.history_kinds import HistoryKind
from jobs.rules.lifecycle.plan import TRAINYARD, Restart, RestartWait, StartHeldRun, Stop, UnprovedRun
from jobs.rules.lifecycle.states import JobState, RunPhase, check
from jobs.rules.lifecycle.verdict import JobCase
from jobs.rules.lifecycle.views import JobView, Outcome, ReplicaView, RunView


@dataclass(frozen=True, slots=True)
class StateChange:
    """A new state of the job, and its line of history."""

    state: JobState
    kind: HistoryKind
    cause: str
    actor: str


@dataclass
class PlanBuilder:
    """What the plan will hold, collected while deciding."""

    case: JobCase
    grace_s: float
    outcome: Outcome | None
    moves: list[StateChange] = field(default_factory=list)
    stops: dict[str, Stop] = field(default_factory=dict)
    restarts: dict[str, Restart | StartHeldRun] = field(default_factory=dict)
    # Until when restarts wait, by replica; and those of them that begin to wait now.
    waits: dict[str, datetime] = field(default_factory=dict)
    new_waits: dict[str, RestartWait] = field(default_factory=dict)
    look_at: datetime | None = None
    left: tuple[UnprovedRun, ...] = ()
    rests_until: datetime | None = None
    next_attempt: bool = False
    together_with: str = ""

    @property
    def view(self) -> JobView:
        return self.case.view

    @property
    def state(self) -> JobState:
        return self.moves[-1].state if self.moves else self.view.state

    @property
    def started_at(self) -> datetime | None:
        """When the job first ran; this may be now."""
        starts = any(each.state == JobState.RUNNING for each in self.moves)
        return self.view.started_at or (self.case.now if starts else None)

    def move(self, state: JobState, kind: HistoryKind, cause: str, actor: str = TRAINYARD) -> None:
        check(self.state, state)
        self.moves.append(StateChange(state, kind, cause, actor))

    def stop_open(self, reason: str) -> None:
        """Stop every run that may still live, but none whose main process has ended: its host cleans up already.

        A run that was stopped for a move with a longer grace gets only `grace_s` when the job ends.
        """
        for run in self.case.open:
            if run.phase == RunPhase.ENDED or (run.held and self.outcome is None):
                continue
            if run.stop_wanted_at is None or run.stop_grace_s > self.grace_s:
                self.stops[run.id] = Stop(run.id, self.grace_s, reason)

    def waits_to_restart(self, replica: ReplicaView, run: RunView, why: str) -> bool:
        """Whether the restart after this closed run waits. The moment is decided once, and written to the run."""
        view, now = self.view, self.case.now
        until = run.restart_at
        if until is None:
            runs = (
                each for each in view.runs if each.replica == replica.name and each.attempt == view.attempt
            )
            wait_s = retry_waits.restart_wait_s(replica, runs, view.retry_wait_s)
            until = now + timedelta(seconds=wait_s)
            if wait_s:
                cause = said(
                    "{why}; {which_restart} waits {until}.",
                    why=why,
                    which_restart=which_restart(replica),
                    until=retry_waits.until_text(until),
                )
                self.new_waits[replica.name] = RestartWait(run.id, until, cause)
        if retry_waits.still_waits(until, now, view.retry_wait_s):
            self.waits[replica.name] = until
            return True
        return False

    def rest(self) -> list[str]:
        """The sentence about the wait of the next attempt; none if it need not wait (any more)."""
        until, unit_s = self.rests_until or self.view.rests_until, self.view.retry_wait_s
        waits = retry_waits.still_waits(until, self.case.now, unit_s)
        self.rests_until = until if waits else None
        return [said("It waits {until}.", until=retry_waits.until_text(until))] if waits and until else []


def which_restart(replica: ReplicaView) -> str:
    return said("restart {number} of {most}", number=replica.restarts + 1, most=retry.MAX_RESTARTS)
