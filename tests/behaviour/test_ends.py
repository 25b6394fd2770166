"""How replicas end, and what follows: restarts, retries, exact texts. All jobs are submitted at once, then read."""

from __future__ import annotations

import pytest

from tests.behaviour.story import (
    GRPC_CANCELLED,
    GRPC_INVALID,
    Story,
    finish,
    kill_replica,
    nothing_lives,
)
from tests.harness.shell import wait_for

STAYS = ["replica", "--seconds", "600", "--every", "0.2"]
TRANSIENT = {"exit:6": "6", "abort": "SIGABRT", "exit:134": "134", "exit:11": "11", "signal:SEGV": "SIGSEGV"}
ENOUGH = "finish-ends"


def frail(how, **limits):
    words = [word for name, value in limits.items() for word in (f"--until-{name}", str(value))]
    return ["frail", "--how", how, *words]


def nonzero(replica, status, reason="Error"):
    return f"The replica {replica} exited with a non-zero status of {status}. Termination reason: {reason}."


@pytest.fixture(scope="module")
def stories(yard):
    """All stories by name, all over."""
    jobs = {
        "seven": [["sh", "-c", "exit 7"]],
        "one": [["sh", "-c", "exit 1"]],
        "worker": [STAYS, frail("exit:2")],
        "not there": [["no-such-program"]],
        **{how: [frail(how, attempt=2)] for how in TRANSIENT},
        "always 134": [frail("exit:134")],
        "always lost": [frail("signal:KILL")],
        "six times": [frail("signal:KILL", attempt=2)],
        "five times": [
            ["replica", "--until", f"~/{ENOUGH}"],
            frail("signal:KILL", run=5),
            frail("signal:TERM", run=2),
        ],
        "lost, then failed": [["sh", "-c", "while ! [ -e ~/fail-ends ]; do sleep 0.1; done; exit 4"], STAYS],
        "remembers": [frail("exit:6", attempt=2), STAYS],
        "no retries": [frail("exit:6")],
        "two at once": [STAYS, {"command": ["sh", "-c", "exit 5"], "replicas": 2}],
    }
    options = {
        "remembers": {"baseOutputDirectory": {"outputUriPrefix": f"{yard.fleet[0].home}/out-ends"}},
        "no retries": {"scheduling": {"disableRetries": True}},
    }
    stories = {name: Story(yard, *pools, name=name, **options.get(name, {})) for name, pools in jobs.items()}
    lost_worker(yard, stories["lost, then failed"])
    five = stories["five times"]
    for name in ("workerpool1-0", "workerpool2-0"):
        wait_for(
            lambda name=name: five.replica(name)["state"] == "FINISHED",
            f"{name} to be well",
            dump=lambda: "\n".join(
                f"{name}: {one.state} {one.ours['reason']}" for name, one in stories.items()
            ),
        )
    finish(yard, ENOUGH)
    return {name: story.over() for name, story in stories.items()}


def lost_worker(yard, story):
    """A job whose worker is lost once and comes back; only then its primary fails."""
    story.wait_for_line("line 0", "workerpool1-0")
    kill_replica(yard, story.run("workerpool1-0"), "replica")
    wait_for(lambda: len(story.runs("workerpool1-0")) > 1, "the worker's second run")
    story.wait_for_line("line 0", "workerpool1-0", story.run("workerpool1-0")["id"])
    finish(yard, "fail-ends")


def attempts(story, name="workerpool0-0"):
    return max(run["attempt"] for run in story.runs(name))


def test_S0_25_S0_23_an_exit_code_has_the_documented_message(stories):
    assert stories["seven"].error == {"code": GRPC_INVALID, "message": nonzero("workerpool0-0", 7)}
    assert stories["seven"].job["state"] == "JOB_STATE_FAILED"


def test_S0_25_a_program_that_is_not_there_is_a_start_error(stories):
    error = stories["not there"].error
    assert error["code"] == GRPC_INVALID
    assert error["message"].startswith(nonzero("workerpool0-0", 128, "StartError"))
    assert "no-such-program" in error["message"]


def test_S0_25_several_failing_replicas_are_named_in_one_message(stories):
    error = stories["two at once"].error["message"]
    ended = [
        name
        for name in ("workerpool1-0", "workerpool1-1")
        if stories["two at once"].run(name)["exitCode"] == 5
    ]
    assert error == " ".join(nonzero(name, 5) for name in ended)


def test_S0_13_S0_24_a_workers_common_error_ends_the_job_and_everything_of_it(stories, yard):
    story = stories["worker"]
    assert story.error == {"code": GRPC_INVALID, "message": nonzero("workerpool1-0", 2)}
    assert story.replica()["state"] == "STOPPED" and len(story.runs()) == 1
    for name in ("worker", "seven", "always 134", "always lost"):
        assert nothing_lives(yard, stories[name].id)


def test_S0_31_ordinary_codes_are_not_tried_again(stories):
    for name, status in {"one": 1, "seven": 7}.items():
        assert attempts(stories[name]) == 1 and stories[name].ours["retries"] == 0
        assert stories[name].error["message"] == nonzero("workerpool0-0", status)


@pytest.mark.parametrize("how", TRANSIENT)
def test_S0_26_S0_27_S0_28_S0_29_S0_30_transient_ends_run_the_whole_job_again(stories, how):
    story = stories[how]
    assert story.job["state"] == "JOB_STATE_SUCCEEDED" and "error" not in story.job
    assert [(run["attempt"], run["number"]) for run in story.runs()] == [(1, 0), (2, 0)]
    assert story.ours["retries"] == 1
    again = next(move for move in story.moves() if move["from_state"] and move["to_state"] == "QUEUED")
    assert TRANSIENT[how] in again["cause"] and "retry 1 of 3" in again["cause"]


def test_S0_18_S0_26_three_retries_and_no_more(stories):
    story = stories["always 134"]
    assert attempts(story) == 4 and len(story.runs()) == 4 and story.ours["retries"] == 3
    assert story.error == {"code": GRPC_INVALID, "message": nonzero("workerpool0-0", 134)}


def test_S0_17_S0_18_a_replica_that_is_always_lost_is_started_24_times(stories):
    story = stories["always lost"]
    runs = [(run["attempt"], run["number"]) for run in story.runs()]
    assert runs == [(attempt, number) for attempt in range(1, 5) for number in range(6)]
    assert story.error == {"code": GRPC_INVALID, "message": nonzero("workerpool0-0", 137)}


def test_S0_16_five_restarts_are_survived_and_counted_by_replica(stories):
    story = stories["five times"]
    assert story.job["state"] == "JOB_STATE_SUCCEEDED"
    counted = {name: story.replica(name)["restarts"] for name in ("workerpool1-0", "workerpool2-0")}
    assert counted == {"workerpool1-0": 5, "workerpool2-0": 2}
    assert story.replica()["restarts"] == 0 and attempts(story) == 1
    assert len({run["host"] for run in story.runs("workerpool1-0")}) == 1


def test_S0_17_the_sixth_loss_runs_the_whole_job_again(stories):
    story = stories["six times"]
    assert [(run["attempt"], run["number"]) for run in story.runs()] == [(1, n) for n in range(6)] + [(2, 0)]
    assert story.job["state"] == "JOB_STATE_SUCCEEDED"


def test_S0_14_what_a_restarted_replica_printed_is_kept_and_changes_no_result(stories):
    story = stories["lost, then failed"]
    assert story.error["message"] == nonzero("workerpool0-0", 4)
    first, second = story.runs("workerpool1-0")
    assert first["exitSignal"] == 9 and story.replica("workerpool1-0")["state"] == "STOPPED"
    for run in (first, second):
        assert "line 0" in story.log("workerpool1-0", run["id"])


def test_S0_19_a_checkpoint_is_found_by_the_next_attempt(stories):
    story = stories["remembers"]
    first, second = story.runs()
    assert f"checkpoint of {first['id']}" in story.log(run=first["id"])
    if first["host"] == second["host"]:
        assert f"checkpoint of {first['id']} {second['id']}" in story.log(run=second["id"])


def test_S0_26_with_retries_disabled_there_is_one_attempt(stories):
    story = stories["no retries"]
    assert attempts(story) == 1 and story.error["message"] == nonzero("workerpool0-0", 6)


def test_S0_23_the_error_is_there_when_the_state_is(stories, yard):
    """The SDK reads both at once; the row has both from the same moment."""
    for story in stories.values():
        state = story.job["state"]
        assert ("error" in story.job) == (state == "JOB_STATE_FAILED"), story.document["displayName"]
        assert (story.error or {}).get("code") != GRPC_CANCELLED
