"""How replicas end, and what follows: restarts, retries, exact texts. All jobs are submitted at once, then read."""

from __future__ import annotations

from itertools import permutations

import pytest

from tests.behaviour.observed_job import (
    GRPC_CANCELLED,
    GRPC_INVALID,
    ObservedJob,
    finish,
    kill_replica,
    nothing_lives,
)
from tests.harness.wait_and_processes import wait_for

STAYS = ["replica", "--seconds", "600", "--every", "0.2"]
TRANSIENT = {"exit:6": "6", "abort": "SIGABRT", "exit:134": "134", "exit:11": "11", "signal:SEGV": "SIGSEGV"}
ENOUGH = "finish-ends"


def fail_until(how, **limits):
    words = [word for name, value in limits.items() for word in (f"--until-{name}", str(value))]
    return ["fail-until", "--how", how, *words]


def nonzero(replica, status, reason="Error"):
    return f"The replica {replica} exited with a non-zero status of {status}. Termination reason: {reason}."


@pytest.fixture(scope="module")
def observed_jobs(yard):
    """All observed_jobs by name, all over."""
    jobs = {
        "seven": [["sh", "-c", "exit 7"]],
        "one": [["sh", "-c", "exit 1"]],
        "worker": [STAYS, fail_until("exit:2")],
        "not there": [["no-such-program"]],
        **{how: [fail_until(how, attempt=2)] for how in TRANSIENT},
        "always 134": [fail_until("exit:134")],
        "always lost": [fail_until("signal:KILL")],
        "six times": [fail_until("signal:KILL", attempt=2)],
        "five times": [
            ["replica", "--until", f"~/{ENOUGH}"],
            fail_until("signal:KILL", run=5),
            fail_until("signal:TERM", run=2),
        ],
        "lost, then failed": [["sh", "-c", "while ! [ -e ~/fail-ends ]; do sleep 0.1; done; exit 4"], STAYS],
        "remembers": [fail_until("exit:6", attempt=2), STAYS],
        "no retries": [fail_until("exit:6")],
        "two at once": [STAYS, {"command": ["sh", "-c", "exit 5"], "replicas": 2}],
    }
    options = {
        "remembers": {"baseOutputDirectory": {"outputUriPrefix": f"{yard.fleet[0].home}/out-ends"}},
        "no retries": {"scheduling": {"disableRetries": True}},
    }
    observed_jobs = {
        name: ObservedJob(yard, *pools, name=name, **options.get(name, {})) for name, pools in jobs.items()
    }
    lost_worker(yard, observed_jobs["lost, then failed"])
    five = observed_jobs["five times"]
    for name in ("workerpool1-0", "workerpool2-0"):
        wait_for(
            lambda name=name: five.replica(name)["state"] == "FINISHED",
            f"{name} to be well",
            dump=lambda: "\n".join(
                f"{name}: {one.state} {one.ours['reason']}" for name, one in observed_jobs.items()
            ),
        )
    finish(yard, ENOUGH)
    return {name: observed.over() for name, observed in observed_jobs.items()}


def lost_worker(yard, observed):
    """A job whose worker is lost once and comes back; only then its primary fails."""
    observed.wait_for_line("line 0", "workerpool1-0")
    kill_replica(yard, observed.run("workerpool1-0"), "replica")
    wait_for(lambda: len(observed.runs("workerpool1-0")) > 1, "the worker's second run")
    observed.wait_for_line("line 0", "workerpool1-0", observed.run("workerpool1-0")["id"])
    finish(yard, "fail-ends")


def attempts(observed, name="workerpool0-0"):
    return max(run["attempt"] for run in observed.runs(name))


def test_S0_25_S0_23_an_exit_code_has_the_documented_message(observed_jobs):
    assert observed_jobs["seven"].error == {"code": GRPC_INVALID, "message": nonzero("workerpool0-0", 7)}
    assert observed_jobs["seven"].job["state"] == "JOB_STATE_FAILED"


def test_S1_04_S2_03_the_page_says_it_in_the_readers_language(observed_jobs):
    observed = observed_jobs["seven"]
    portuguese = "A réplica workerpool0-0 saiu com status diferente de zero de 7. Motivo da rescisão: Error."
    korean = "복제본 workerpool0-0이 0이 아닌 7 상태로 종료되었습니다. 종료 원인은 Error입니다."
    assert portuguese in observed.page_in("pt-BR") and korean in observed.page_in("ko")
    assert observed.error["message"] == nonzero("workerpool0-0", 7), "programs read English"


def test_S0_25_a_program_that_is_not_there_is_a_start_error(observed_jobs):
    error = observed_jobs["not there"].error
    assert error["code"] == GRPC_INVALID
    assert error["message"].startswith(nonzero("workerpool0-0", 128, "StartError"))
    assert "no-such-program" in error["message"]


def test_S0_25_several_failing_replicas_are_named_in_one_message(observed_jobs):
    observed = observed_jobs["two at once"]
    error = observed.error["message"]
    # One that was told to stop before its own end was seen has not failed, whatever it exited with.
    states = {name: observed.replica(name)["state"] for name in ("workerpool1-0", "workerpool1-1")}
    ended = [name for name, state in states.items() if state == "FAILED"]
    assert ended and all(observed.run(name)["exitCode"] == 5 for name in ended), states
    # The one that failed first comes first, and either may be that.
    told = [" ".join(nonzero(name, 5) for name in names) for names in permutations(ended)]
    assert error in told


def test_S0_13_S0_24_a_workers_common_error_ends_the_job_and_everything_of_it(observed_jobs, yard):
    observed = observed_jobs["worker"]
    assert observed.error == {"code": GRPC_INVALID, "message": nonzero("workerpool1-0", 2)}
    assert observed.replica()["state"] == "STOPPED" and len(observed.runs()) == 1
    for name in ("worker", "seven", "always 134", "always lost"):
        assert nothing_lives(yard, observed_jobs[name].id)


def test_S0_31_ordinary_codes_are_not_tried_again(observed_jobs):
    for name, status in {"one": 1, "seven": 7}.items():
        assert attempts(observed_jobs[name]) == 1 and observed_jobs[name].ours["retries"] == 0
        assert observed_jobs[name].error["message"] == nonzero("workerpool0-0", status)


@pytest.mark.parametrize("how", TRANSIENT)
def test_S0_26_S0_27_S0_28_S0_29_S0_30_transient_ends_run_the_whole_job_again(observed_jobs, how):
    observed = observed_jobs[how]
    assert observed.job["state"] == "JOB_STATE_SUCCEEDED" and "error" not in observed.job
    assert [(run["attempt"], run["number"]) for run in observed.runs()] == [(1, 0), (2, 0)]
    assert observed.ours["retries"] == 1
    again = next(move for move in observed.moves() if move["from_state"] and move["to_state"] == "QUEUED")
    assert TRANSIENT[how] in again["cause"] and "retry 1 of 3" in again["cause"]


def test_S0_18_S0_26_three_retries_and_no_more(observed_jobs):
    observed = observed_jobs["always 134"]
    assert attempts(observed) == 4 and len(observed.runs()) == 4 and observed.ours["retries"] == 3
    assert observed.error == {"code": GRPC_INVALID, "message": nonzero("workerpool0-0", 134)}


def test_S0_17_S0_18_a_replica_that_is_always_lost_is_started_24_times(observed_jobs):
    observed = observed_jobs["always lost"]
    runs = [(run["attempt"], run["number"]) for run in observed.runs()]
    assert runs == [(attempt, number) for attempt in range(1, 5) for number in range(6)]
    assert observed.error == {"code": GRPC_INVALID, "message": nonzero("workerpool0-0", 137)}


def test_S0_12_S0_17_the_first_restart_is_at_once_and_each_further_one_says_how_long_it_waits(observed_jobs):
    """The product of the tests counts in twentieths of a second; how long the waits are: test_retry_waits.py."""
    observed = observed_jobs["always lost"]
    told = [move["cause"] for subject in ("job", "workerpool0-0") for move in observed.moves(subject)]
    for restart in range(1, 6):
        waits = [cause for cause in told if f"restart {restart} of 5 waits until 2" in cause]
        assert len(waits) == (0 if restart == 1 else 4), waits
    for retry in range(1, 4):
        (again,) = {cause for cause in told if f"retry {retry} of 3." in cause and "Waits for" not in cause}
        assert ("It waits until 2" in again) == (retry > 1), again


def test_S0_16_five_restarts_are_survived_and_counted_by_replica(observed_jobs):
    observed = observed_jobs["five times"]
    assert observed.job["state"] == "JOB_STATE_SUCCEEDED"
    counted = {name: observed.replica(name)["restarts"] for name in ("workerpool1-0", "workerpool2-0")}
    assert counted == {"workerpool1-0": 5, "workerpool2-0": 2}
    assert observed.replica()["restarts"] == 0 and attempts(observed) == 1
    assert len({run["host"] for run in observed.runs("workerpool1-0")}) == 1


def test_S0_17_the_sixth_loss_runs_the_whole_job_again(observed_jobs):
    observed = observed_jobs["six times"]
    assert [(run["attempt"], run["number"]) for run in observed.runs()] == [(1, n) for n in range(6)] + [
        (2, 0)
    ]
    assert observed.job["state"] == "JOB_STATE_SUCCEEDED"


def test_S0_14_what_a_restarted_replica_printed_is_kept_and_changes_no_result(observed_jobs):
    observed = observed_jobs["lost, then failed"]
    # The primary may have failed because the worker was lost, so the error names the worker before it.
    message = observed.error["message"]
    assert message.startswith("The replica workerpool1-0 was lost first: it was killed by SIGKILL on gpu")
    assert message.endswith(nonzero("workerpool0-0", 4))
    first, second = observed.runs("workerpool1-0")
    assert first["exitSignal"] == 9 and observed.replica("workerpool1-0")["state"] == "STOPPED"
    for run in (first, second):
        assert "line 0" in observed.log("workerpool1-0", run["id"])


def test_S0_19_a_checkpoint_is_found_by_the_next_attempt(observed_jobs):
    observed = observed_jobs["remembers"]
    first, second = observed.runs()
    assert f"checkpoint of {first['id']}" in observed.log(run=first["id"])
    if first["host"] == second["host"]:
        assert f"checkpoint of {first['id']} {second['id']}" in observed.log(run=second["id"])


def test_S0_26_with_retries_disabled_there_is_one_attempt(observed_jobs):
    observed = observed_jobs["no retries"]
    assert attempts(observed) == 1 and observed.error["message"] == nonzero("workerpool0-0", 6)


def test_S0_23_the_error_is_there_when_the_state_is(observed_jobs, yard):
    """The SDK reads both at once; the row has both from the same moment."""
    for observed in observed_jobs.values():
        state = observed.job["state"]
        assert ("error" in observed.job) == (state == "JOB_STATE_FAILED"), observed.document["displayName"]
        assert (observed.error or {}).get("code") != GRPC_CANCELLED
