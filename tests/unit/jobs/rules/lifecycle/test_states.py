"""The tables of states, and the drawing that is made from them."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from jobs.rules.lifecycle.states import (
    TERMINAL,
    IllegalMove,
    JobState,
    ReplicaState,
    RunPhase,
    check,
    drawing,
    legal,
    wire_name,
)

README = Path(__file__).parents[5] / "jobs" / "README.md"


def test_nothing_leaves_a_terminal_state_and_every_other_state_leads_to_one():
    for before, after in product(JobState, JobState):
        assert not (before in TERMINAL and legal(before, after))
    for start in set(JobState) - TERMINAL:
        reached = {start}
        for _ in JobState:
            reached |= {after for before in reached for after in JobState if legal(before, after)}
        assert reached & TERMINAL


def test_cancelling_leads_to_cancelled_only():
    assert [after for after in JobState if legal(JobState.CANCELLING, after)] == [JobState.CANCELLED]


def test_an_illegal_move_names_both_states():
    with pytest.raises(IllegalMove, match="SUCCEEDED is never followed by RUNNING"):
        check(JobState.SUCCEEDED, JobState.RUNNING)
    assert not legal(JobState.RUNNING, ReplicaState.RUNNING), "a job's state is no replica's"


def test_the_names_of_states_on_the_wire_are_fixed():
    assert wire_name(JobState.RUNNING) == "JOB_STATE_RUNNING"
    assert [phase.value for phase in RunPhase] == ["created", "claimed", "running", "ended", "closed"]
    assert sorted(RunPhase, key=lambda phase: phase.rank) == list(RunPhase)
    assert max(len(state) for kind in (JobState, ReplicaState, RunPhase) for state in kind) <= 16


def test_the_drawing_in_the_readme_is_fresh():
    assert f"```mermaid\n{drawing()}\n```" in README.read_text()
