"""A whole life of a job in a hostile world: facts late, doubled, lost, reordered; unreachable hosts, cancels, timeouts.

Hosts hold the truth about runs. The console learns it only from snapshots, which may be delivered at any time, any
number of times, in any order, or never; and it may decide at any moment.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jobs.rules.lifecycle.decide import decide
from jobs.rules.lifecycle.plan import NOTHING
from jobs.rules.lifecycle.retry import MAX_RESTARTS, MAX_RETRIES
from jobs.rules.lifecycle.states import TERMINAL, JobState, ReplicaState, RunPhase
from tests.unit.jobs.rules.views import GRACE_S, NOW, applied, examples, hold_place, placed, queued, spec

ENDS = [
    {"why": "exit", "exit_code": 0},
    {"why": "exit", "exit_code": 1},
    {"why": "exit", "exit_code": 134},
    {"why": "exit", "exit_signal": 9},
    {"why": "exit", "exit_signal": 9, "oom": True},
    {"why": "lost"},
    {"why": "reboot"},
    {"why": "timeout", "exit_signal": 15},
]
# A life that always ends well is a short one: losses are drawn more often.
OFTEN = ENDS + [ENDS[3], ENDS[5], ENDS[6]] * 6
FACTS = ("started_at", "ended_at", "closed_at", "exit_code", "exit_signal", "why", "refusal", "oom")


class Life(RuleBasedStateMachine):
    @initialize(
        counts=st.sampled_from([(1,), (1, 1), (1, 2), (1, 0, 1)]),
        disabled=st.sampled_from([False, False, True]),
        together=st.booleans(),
        timeout_s=st.sampled_from([100.0, 1e6, 1e6]),
        wait_s=st.sampled_from([None, 50.0]),
        retries=st.integers(0, 2),
        unit_s=st.sampled_from([0.0, 5.0]),
    )
    def submit(self, counts, disabled, together, timeout_s, wait_s, retries, unit_s):
        of = spec(
            *counts,
            disable_retries=disabled,
            restart_job_on_worker_restart=together,
            timeout_s=timeout_s,
            max_wait_duration_s=wait_s,
        )
        self.now, self.truth, self.air, self.ended_as = NOW, {}, [], None
        self.moves = 0
        self.view = queued(of, job_retries=retries, attempt=1 + retries, retry_wait_s=unit_s)

    # -- the console --

    def plan_and_apply(self):
        before = self.view
        plan = decide(before, self.now, GRACE_S)
        self.view = applied(before, plan, self.now)
        for run in self.view.runs:
            if run.id not in self.truth:
                assert not [old for old in self.truth.values() if old.replica == run.replica and alive(old)]
                self.truth[run.id] = run
        again = decide(self.view, self.now, GRACE_S)
        assert again == NOTHING, "what was applied is done"
        if self.view.state in TERMINAL and before.state not in TERMINAL:
            still_open = [run for run in self.view.runs if run.phase != RunPhase.CLOSED]
            assert {left.run: left.since for left in plan.left} == {
                run.id: run.unreachable_since for run in still_open
            } and all(run.unreachable_since for run in still_open), "what is not proved over is named"
        else:
            assert plan.left == ()

    @rule()
    def decide_now(self):
        self.plan_and_apply()

    @precondition(lambda self: self.view.state == JobState.QUEUED and not self.view.cancel_requested_at)
    @rule()
    def schedule(self):
        rests = self.view.rests_until
        if self.view.outcome is None and (rests is None or rests <= self.now):
            self.view = placed(self.view)
            assert not [run for run in self.truth.values() if alive(run)], "an attempt begins on clean ground"
            self.truth |= {run.id: run for run in self.view.runs}

    @precondition(lambda self: self.view.state not in TERMINAL and not self.view.cancel_requested_at)
    @rule(really=st.sampled_from([False] * 15 + [True]))
    def cancel(self, really):
        if really:
            self.view = replace(self.view, cancel_requested_at=self.now, cancel_requested_by="alice")

    @precondition(
        lambda self: self.view.state in (JobState.PENDING, JobState.RUNNING) and not self.view.outcome
    )
    @rule(data=st.data(), forced=st.sampled_from([False] * 8 + [True]))
    def a_host_is_drained(self, data, forced):
        """What moves.py does: a held run on another host for a replica that may live, or the whole job must leave."""
        if forced:
            self.view = replace(self.view, preempted="Must leave.")
            return
        here = [
            run
            for run in self.view.runs
            if not run.held and run.phase not in (RunPhase.ENDED, RunPhase.CLOSED)
        ]
        if (
            self.view.cancel_requested_at
            or self.view.preempted
            or any(run.held and run.phase != RunPhase.CLOSED for run in self.view.runs)
        ):
            return
        for name in sorted({run.replica for run in here}):
            if data.draw(st.booleans()):
                self.view = hold_place(self.view, name)
                self.truth[self.view.runs[-1].id] = self.view.runs[-1]
                self.moves += 1

    @rule(seconds=st.sampled_from([1, 10, 60]))
    def time_passes(self, seconds):
        self.now += timedelta(seconds=seconds)

    # -- the hosts --

    def move(self, run, phase, **facts):
        self.truth[run.id] = replace(run, phase=phase, **facts)
        self.air.append(self.truth[run.id])

    def stop_known_to(self, run):
        return next((known.stop_wanted_at for known in self.view.runs if known.id == run.id), None)

    def step(self, run, end, refusal=""):
        """The next thing that happens to a run on its host."""
        stopped = self.stop_known_to(run)
        if not stopped and any(known.id == run.id and known.held for known in self.view.runs):
            return  # a held run: its host has never heard of it
        if run.phase == RunPhase.CREATED and stopped:
            self.move(run, RunPhase.CLOSED, why="tombstone", closed_at=self.now)
        elif run.phase == RunPhase.CREATED and refusal:
            self.move(run, RunPhase.CLOSED, why="refused", refusal=refusal, closed_at=self.now)
        elif run.phase == RunPhase.CREATED:
            self.move(run, RunPhase.CLAIMED)
        elif run.phase == RunPhase.CLAIMED:
            self.move(run, RunPhase.RUNNING, started_at=self.now)
        elif run.phase == RunPhase.RUNNING:
            end = {"why": "stop", "exit_signal": 15} if stopped else end
            self.move(run, RunPhase.ENDED, ended_at=self.now, **end)
        elif run.phase == RunPhase.ENDED:
            self.move(run, RunPhase.CLOSED, closed_at=self.now)

    @precondition(lambda self: any(run.phase != RunPhase.CLOSED for run in self.truth.values()))
    @rule(data=st.data(), steps=st.integers(1, 4), end=st.sampled_from(OFTEN))
    def something_happens_on_a_host(self, data, steps, end):
        runs = [run for run in self.truth.values() if run.phase != RunPhase.CLOSED]
        run = data.draw(st.sampled_from(runs))
        refusal = data.draw(st.sampled_from([""] * 6 + ["port_taken", "exec_failed"]))
        for _ in range(steps):
            self.step(self.truth[run.id], end, refusal)

    @precondition(lambda self: self.view.runs)
    @rule(data=st.data(), silent=st.booleans())
    def a_host_falls_silent_or_answers(self, data, silent):
        quiet = data.draw(st.sampled_from(self.view.runs)).replica
        since = self.now if silent else None
        runs = (replace(r, unreachable_since=since) if r.replica == quiet else r for r in self.view.runs)
        self.view = replace(self.view, runs=tuple(runs))

    # -- between them --

    def deliver(self, told):
        """What intake.py does: phases only grow, and a known fact is never written again."""
        runs = []
        for known in self.view.runs:
            if known.id == told.id and told.phase.rank > known.phase.rank:
                news = {name: getattr(told, name) for name in FACTS if getattr(known, name) in (None, "")}
                known = replace(known, phase=told.phase, **news)
            runs.append(known)
        self.view = replace(self.view, runs=tuple(runs))

    @precondition(lambda self: self.air)
    @rule(data=st.data(), kept=st.booleans())
    def a_fact_arrives(self, data, kept):
        told = data.draw(st.sampled_from(self.air))
        self.deliver(told)
        if not kept:
            self.air.remove(told)

    @rule()
    def all_hosts_tell_everything(self):
        for told in self.truth.values():
            self.deliver(told)

    @rule(ends=st.lists(st.sampled_from(OFTEN), min_size=3, max_size=3), steps=st.integers(1, 5))
    def a_while_passes_as_it_should(self, ends, steps):
        """Long lives are rare among random steps: this is what happens most of the time."""
        if self.view.state == JobState.QUEUED and not self.view.cancel_requested_at and not self.view.outcome:
            self.schedule()
        for run, end in zip([run for run in self.truth.values() if alive(run)], ends, strict=False):
            for _ in range(steps):
                self.step(self.truth[run.id], end)
        self.all_hosts_tell_everything()
        self.plan_and_apply()

    # -- what always holds --

    @invariant()
    def nothing_leaves_a_terminal_state(self):
        if not hasattr(self, "view"):
            return
        if self.ended_as is None and self.view.state in TERMINAL:
            self.ended_as = self.view.state
        assert self.ended_as in (None, self.view.state)

    @invariant()
    def runs_are_bounded(self):
        if hasattr(self, "view"):
            assert self.view.job_retries <= MAX_RETRIES
            # Each move starts each replica once more, and counts against nothing.
            assert all(run.number <= MAX_RESTARTS + 2 * self.moves for run in self.truth.values())

    def teardown(self):
        """When hosts answer again and programs end, the job ends: in one state, with nothing left anywhere."""
        if not hasattr(self, "view"):
            return
        for _ in range(80):
            self.now += timedelta(seconds=60)  # longer than a restart waits
            runs = tuple(replace(run, unreachable_since=None) for run in self.view.runs)
            self.view = replace(self.view, runs=runs)
            for run in [*self.truth.values()]:
                self.step(run, {"why": "exit", "exit_code": 0})
            self.all_hosts_tell_everything()
            self.plan_and_apply()
            if self.view.state == JobState.QUEUED:
                self.schedule()
            self.nothing_leaves_a_terminal_state()
            self.runs_are_bounded()
            if self.view.state in TERMINAL and not [r for r in self.view.runs if r.phase != RunPhase.CLOSED]:
                break
        self.plan_and_apply()
        assert self.view.state in TERMINAL
        assert self.view.outcome and self.view.outcome.state == self.view.state
        assert all(run.phase == RunPhase.CLOSED for run in self.truth.values())
        still = {ReplicaState.STARTING, ReplicaState.RUNNING, ReplicaState.STOPPING}
        assert not [replica for replica in self.view.replicas if replica.state in still]
        assert (self.view.flags, self.view.due_at) == ((), None)


def alive(run):
    return run.phase != RunPhase.CLOSED


TestLife = Life.TestCase
TestLife.settings = examples(120, stateful_step_count=50)
# Seconds of work; a machine that is busy with ten other things needs minutes.
TestLife.pytestmark = pytest.mark.timeout(600)
