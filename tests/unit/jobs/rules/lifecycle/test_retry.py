"""Every end of a run, and what follows from it: the whole table in the documents of Vertex."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from jobs.rules.lifecycle import retry
from jobs.rules.lifecycle.decide import decide
from jobs.rules.lifecycle.retry import EndClass, classify
from jobs.rules.lifecycle.states import JobState, ReplicaState, RunPhase
from jobs.rules.spec.tasks import REDUCTION_SERVER
from tests.unit.jobs.rules.views import GRACE_S, NOW, ended, hold_place, job, run_of, spec

ENDS = [
    # facts, class as the primary, class as another replica
    ({"exit_code": 0}, EndClass.SUCCESS, EndClass.FINISHED),
    ({"exit_code": 0, "oom": True}, EndClass.SUCCESS, EndClass.FINISHED),
    *[({"exit_code": code}, EndClass.TRANSIENT, EndClass.TRANSIENT) for code in (6, 11, 134, 139)],
    *[({"exit_signal": number}, EndClass.TRANSIENT, EndClass.TRANSIENT) for number in (6, 11)],
    *[
        ({"exit_code": code}, EndClass.USER_ERROR, EndClass.USER_ERROR)
        for code in (1, 2, 7, 127, 128, 160, 255)
    ],
    *[
        ({"exit_code": code}, EndClass.NOT_PERMANENT, EndClass.NOT_PERMANENT)
        for code in (129, 130, 137, 143, 159)
    ],
    *[({"exit_signal": number}, EndClass.NOT_PERMANENT, EndClass.NOT_PERMANENT) for number in (1, 2, 9, 15)],
    ({"exit_signal": 9, "oom": False}, EndClass.NOT_PERMANENT, EndClass.NOT_PERMANENT),
    ({"exit_signal": 9, "oom": True}, EndClass.OUT_OF_MEMORY, EndClass.OUT_OF_MEMORY),
    ({"exit_code": 137, "oom": True}, EndClass.OUT_OF_MEMORY, EndClass.OUT_OF_MEMORY),
    ({"exit_code": 1, "oom": True}, EndClass.OUT_OF_MEMORY, EndClass.OUT_OF_MEMORY),
    ({}, EndClass.NOT_PERMANENT, EndClass.NOT_PERMANENT),
    ({"why": "lost"}, EndClass.NOT_PERMANENT, EndClass.NOT_PERMANENT),
    ({"why": "reboot"}, EndClass.NOT_PERMANENT, EndClass.NOT_PERMANENT),
    ({"why": "stop", "exit_signal": 15}, EndClass.NOT_PERMANENT, EndClass.NOT_PERMANENT),
    ({"why": "stop", "exit_code": 0, "stop_wanted_at": NOW}, EndClass.STOPPED, EndClass.STOPPED),
    ({"why": "tombstone", "stop_wanted_at": NOW}, EndClass.STOPPED, EndClass.STOPPED),
    ({"why": "timeout", "exit_signal": 15}, EndClass.TIMEOUT, EndClass.TIMEOUT),
    ({"why": "refused", "refusal": "exec_failed"}, EndClass.USER_ERROR, EndClass.USER_ERROR),
    ({"why": "refused", "refusal": "gpu_busy"}, EndClass.BUSY, EndClass.BUSY),
    ({"why": "refused", "refusal": "unprepared"}, EndClass.UNPREPARED, EndClass.UNPREPARED),
    (
        {"why": "refused", "refusal": "unprepared", "prepared_at": NOW},
        EndClass.INTERNAL,
        EndClass.INTERNAL,
    ),
    *[
        ({"why": "refused", "refusal": refusal}, EndClass.INTERNAL, EndClass.INTERNAL)
        for refusal in ("port_taken", "disk_full", "bad_order", "something_new")
    ],
]
# Facts whose class is each class, for the products below.
FACTS = {end: facts for facts, *ends in reversed(ENDS) for end in ends}


@pytest.mark.parametrize(("facts", "primary", "other"), ENDS, ids=str)
@pytest.mark.parametrize("phase", [RunPhase.ENDED, RunPhase.CLOSED])
def test_every_end_has_its_class(facts, primary, other, phase):
    assert classify(ended(phase=phase, **facts), primary=True) == primary
    assert classify(ended(phase=phase, **facts), primary=False) == other


def with_reducers(*runs, **fields):
    """One primary, one worker and one reducer."""
    of = spec(1, 1, 1)
    reducers = replace(of.pools[2], runtime=REDUCTION_SERVER)
    return job(*runs, of=replace(of, pools=(*of.pools[:2], reducers)), **fields)


@pytest.mark.parametrize(("facts", "primary", "other"), ENDS, ids=str)
def test_a_reducer_ends_as_any_replica_but_for_an_exit_status_of_0(facts, primary, other):
    """It serves until it is stopped: its peers cannot go on without it."""
    end = EndClass.TRANSIENT if other == EndClass.FINISHED else other
    assert classify(ended(**facts), primary=False, reducer=True) == end


def test_a_reducer_that_exits_with_0_runs_the_whole_job_again():
    peers = [run_of("workerpool0-0"), run_of("workerpool1-0")]
    over = ended("workerpool2-0", exit_code=0)
    plan = decide(with_reducers(*peers, over), NOW, GRACE_S)
    assert plan.outcome.state == JobState.QUEUED and plan.job_retries == 1
    assert {stop.run for stop in plan.stop} == {peer.id for peer in peers}
    assert "workerpool2-0 exited with status 0" in plan.outcome.message
    failed = decide(with_reducers(*peers, over, job_retries=3), NOW, GRACE_S).outcome
    assert failed.state == JobState.FAILED
    assert failed.message == "The reducer workerpool2-0 exited with a status of 0 before its job was over."
    # A parameter server in its place has done its part.
    assert decide(job(*peers, over, of=spec(1, 1, 1)), NOW, GRACE_S).outcome is None
    # The primary's own success comes first, and a reducer that was told to stop has ended as it should.
    done = ended("workerpool0-0", exit_code=0)
    assert decide(with_reducers(done, peers[1], over), NOW, GRACE_S).outcome.state == JobState.SUCCEEDED
    stopped = ended("workerpool2-0", why="stop", exit_code=0, stop_wanted_at=NOW)
    assert decide(with_reducers(*peers, stopped), NOW, GRACE_S).outcome is None


def test_a_run_that_is_not_over_has_no_class():
    phases = (RunPhase.CREATED, RunPhase.CLAIMED, RunPhase.RUNNING)
    assert [classify(run_of(phase=phase), primary=True) for phase in phases] == [None] * 3


def expected(end, primary, restarts, retries, tries, disabled, together):
    """The table once more, in another form than in the code. None: the job goes on."""
    retry_left = retries < 3 and not disabled
    match end:
        case EndClass.SUCCESS:
            return JobState.SUCCEEDED
        case EndClass.USER_ERROR | EndClass.OUT_OF_MEMORY:
            return JobState.FAILED
        case EndClass.TRANSIENT:
            return JobState.QUEUED if retry_left else JobState.FAILED
        case EndClass.INTERNAL:
            return JobState.QUEUED if retry_left and tries < 2 else JobState.FAILED
        case EndClass.BUSY | EndClass.UNPREPARED:
            return JobState.QUEUED
        case EndClass.TIMEOUT:
            return JobState.CANCELLED
        case EndClass.STOPPED:
            return None  # we stopped it, for a move that is not needed any more
        case EndClass.NOT_PERMANENT if restarts >= 5:
            return JobState.QUEUED if retry_left else JobState.FAILED
    return None


PRODUCT = list(
    product(EndClass, (True, False), (0, 4, 5), (0, 2, 3), (0, 1, 2), (True, False), (True, False))
)


def test_every_class_role_counter_and_flag_leads_where_the_table_says():
    for end, primary, restarts, retries, tries, disabled, together in PRODUCT:
        if (end == EndClass.SUCCESS) != primary and end in (EndClass.SUCCESS, EndClass.FINISHED):
            continue
        name, other = ("workerpool0-0", "workerpool1-0")[:: 1 if primary else -1]
        view = job(
            ended(name, **FACTS[end]),
            run_of(other),
            of=spec(1, 1, disable_retries=disabled, restart_job_on_worker_restart=together),
            replicas={name: {"restarts": restarts}},
            job_retries=retries,
            internal_tries=tries,
        )
        plan = decide(view, NOW, GRACE_S)
        case = (end, primary, restarts, retries, tries, disabled, together)
        outcome = expected(*case)
        assert (plan.outcome.state if plan.outcome else None) == outcome, case
        if outcome is not None:
            assert [stop.run for stop in plan.stop] == [view.runs[1].id], case
            assert not plan.restart, case
            grown = outcome == JobState.QUEUED and end not in (EndClass.BUSY, EndClass.UNPREPARED)
            assert plan.job_retries == (retries + 1 if grown else None), case
        elif end == EndClass.FINISHED:
            assert not plan.stop and not plan.restart, case
            assert plan.replica_states == {name: ReplicaState.FINISHED}
        elif together and not disabled and end == EndClass.NOT_PERMANENT:
            assert [stop.run for stop in plan.stop] == [view.runs[1].id], case
            assert not plan.restart, "all are restarted together, and one still lives"
        else:
            assert [(again.replica, again.after) for again in plan.restart] == [(name, view.runs[0].id)], case
            assert not plan.stop, case
            assert plan.restart[0].counts == (end == EndClass.NOT_PERMANENT), case


MOVES = list(
    product(EndClass, (True, False), (0, 5), (0, 3), (True, False), (True, False), ("", "moves", "gone"))
)


def test_maintenance_leads_where_its_table_says_and_counts_against_nothing():
    """Every class × role × counters × flags, with a held run for the replica, or its host declared gone."""
    for end, primary, restarts, retries, disabled, together, how in MOVES:
        if (end == EndClass.SUCCESS) != primary and end in (EndClass.SUCCESS, EndClass.FINISHED):
            continue
        name, other = ("workerpool0-0", "workerpool1-0")[:: 1 if primary else -1]
        facts = {"why": "lost", "gone": True} if how == "gone" else FACTS[end]
        if how == "gone" and end != EndClass.NOT_PERMANENT:
            continue
        view = job(
            ended(name, **facts),
            ended(other, why="stop", stop_wanted_at=NOW),
            of=spec(1, 1, disable_retries=disabled, restart_job_on_worker_restart=together),
            replicas={name: {"restarts": restarts}, other: {"restarts": 5}},
            job_retries=retries,
        )
        view = hold_place(view, name) if how else view
        plan = decide(view, NOW, GRACE_S)
        case = (end, primary, restarts, retries, disabled, together, how)
        if not how:
            continue  # the table of the test above
        ending = {
            EndClass.SUCCESS: JobState.SUCCEEDED,
            EndClass.USER_ERROR: JobState.FAILED,
            EndClass.OUT_OF_MEMORY: JobState.FAILED,
            EndClass.BUSY: JobState.QUEUED,
            EndClass.UNPREPARED: JobState.QUEUED,
            EndClass.TIMEOUT: JobState.CANCELLED,
            EndClass.TRANSIENT: JobState.QUEUED if retries < 3 and not disabled else JobState.FAILED,
            EndClass.INTERNAL: JobState.QUEUED if retries < 3 and not disabled else JobState.FAILED,
        }.get(end)
        held = view.runs[-1].id
        assert (plan.outcome.state if plan.outcome else None) == ending, case
        if ending is not None:
            assert [stop.run for stop in plan.stop] == [held] and not plan.take and not plan.restart, case
        elif end == EndClass.FINISHED:
            assert [stop.run for stop in plan.stop] == [held] and not plan.take, case
        else:
            assert [(take.replica, take.run, take.counts) for take in plan.take] == [
                (name, held, how == "gone")
            ]
            assert [(again.replica, again.counts) for again in plan.restart] == [(other, False)], case
            assert plan.job_retries is None and not plan.stop and plan.state is None, case


PREEMPTED = list(
    product(EndClass, (True, False), (0, 5), (0, 3), (True, False), (True, False), (True, False))
)


def test_a_job_that_must_leave_goes_back_to_the_queue_unless_its_end_is_known():
    for end, primary, restarts, retries, disabled, together, open_ in PREEMPTED:
        if (end == EndClass.SUCCESS) != primary and end in (EndClass.SUCCESS, EndClass.FINISHED):
            continue
        name, other = ("workerpool0-0", "workerpool1-0")[:: 1 if primary else -1]
        facts = {"of": spec(1, 1, disable_retries=disabled, restart_job_on_worker_restart=together)}
        facts |= {"replicas": {name: {"restarts": restarts}}, "job_retries": retries, "preempted": "Leaves."}
        here = run_of(name) if open_ else ended(name, **FACTS[end])
        view = job(here, run_of(other), **facts)
        plan = decide(view, NOW, GRACE_S, 30.0)
        case = (end, primary, restarts, retries, disabled, together, open_)
        known = None if open_ else expected(end, primary, restarts, retries, 0, disabled, together)
        if known not in (None, JobState.QUEUED):
            assert plan.outcome and plan.outcome.state == known, case
            continue
        assert plan.outcome and plan.outcome.state == JobState.QUEUED, case
        assert (plan.job_retries is None) == (known is None or end in (EndClass.BUSY, EndClass.UNPREPARED)), (
            case
        )
        assert plan.internal_tries is None or end == EndClass.INTERNAL, case
        assert {stop.grace_s for stop in plan.stop} == {30.0}, case


MESSAGES = [
    (
        {"exit_code": 7},
        3,
        "The replica workerpool0-0 exited with a non-zero status of 7. Termination reason: Error.",
    ),
    (
        {"exit_signal": 9, "oom": True},
        3,
        "The replica workerpool0-0 ran out of memory and exited with a non-zero status of 137.",
    ),
    (
        {"why": "refused", "refusal": "exec_failed", "message": "train: not found"},
        3,
        "The replica workerpool0-0 exited with a non-zero status of 128. Termination reason: StartError."
        "\n Termination log message: train: not found",
    ),
    (
        {"exit_signal": 11},
        3,
        "The replica workerpool0-0 exited with a non-zero status of 139. Termination reason: Error.",
    ),
    (
        {"exit_code": 143},
        3,
        "The replica workerpool0-0 exited with a non-zero status of 143. Termination reason: Error.",
    ),
    ({"why": "refused", "refusal": "disk_full"}, 13, "Internal error occurred for the current attempt"),
    (
        {"why": "reboot"},
        14,
        "The replica workerpool0-0 was lost too often; the last time it was lost: "
        "host-of-workerpool0-0 was rebooted.",
    ),
    ({"why": "timeout"}, 1, "The job was cancelled because it ran longer than its timeout of 604800s."),
]


@pytest.mark.parametrize(("facts", "code", "message"), MESSAGES, ids=lambda value: str(value)[:30])
def test_the_error_has_the_documents_text_and_a_grpc_code(facts, code, message):
    view = job(ended(**facts), replicas={"workerpool0-0": {"restarts": 5}}, job_retries=3)
    outcome = decide(view, NOW, GRACE_S).outcome
    assert (outcome.code, outcome.message) == (code, message)


def test_several_failing_replicas_are_named_in_one_message():
    view = job(
        ended("workerpool0-0", exit_code=1),
        ended("workerpool1-1", exit_signal=9, oom=True),
        ended("workerpool1-0", exit_code=2),
    )
    assert decide(view, NOW, GRACE_S).outcome.message == (
        "The replica workerpool0-0 exited with a non-zero status of 1. Termination reason: Error. "
        "The replica workerpool1-0 exited with a non-zero status of 2. Termination reason: Error. "
        "The replica workerpool1-1 ran out of memory and exited with a non-zero status of 137."
    )


def test_stockout_names_the_location():
    assert retry.no_capacity("lab-a").message == (
        "Resources are insufficient in region: lab-a. Try a different region or use a different accelerator."
    )


def test_every_end_has_a_description():
    for facts, *_ in ENDS:
        assert "host-of-workerpool0-0" in retry.how_it_ended(ended(**facts)), facts
    assert retry.how_it_ended(ended(exit_signal=9)) == "was killed by SIGKILL on host-of-workerpool0-0"
    assert retry.how_it_ended(ended(exit_signal=99)) == "was killed by signal 99 on host-of-workerpool0-0"
    refused = ended(why="refused", refusal="runtime", message="docker: it is not permitted.")
    assert retry.how_it_ended(refused).endswith("(runtime): docker: it is not permitted")
