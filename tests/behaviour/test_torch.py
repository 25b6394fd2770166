"""Real training with torch over two hosts: by plain python, by a bare torchrun with either rendezvous, and from
CLUSTER_SPEC alone. The hosts' own names are 127.0.1.1, as Debian and Ubuntu have it."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.behaviour.observed_job import ObservedJob, kill_replica
from tests.harness.wait_and_processes import wait_for

# torch 1.13 under Python 3.11 fails with its own default for redirects, so one is given; tee shows the output here.
DEBIAN = {"PET_REDIRECTS": "1", "PET_TEE": "1"}
COMMANDS = {
    "python": ["torch-ddp"],
    "torchrun": ["torchrun", "/usr/local/bin/torch-ddp"],
    "torchrun c10d": ["torchrun", "--rdzv_backend=c10d", "/usr/local/bin/torch-ddp"],
    "cluster spec": ["torch-ddp", "--by", "cluster-spec"],
}
RANK = re.compile(r"rank (\d+) of (\d+) on (\w+): sum (\d+) weights (\w+)")


@pytest.fixture(scope="module")
def trained(yard):
    """trained(how): a job that is over, run once for all tests that ask for it.

    With 5 GPUs each, two replicas never share a host. torchrun would start 5 processes in each; 2 are enough.
    """

    @cache
    def run(how):
        pool = {"command": COMMANDS[how], "gpus": 5, "env": {"PET_NPROC_PER_NODE": "2", **DEBIAN}}
        return ObservedJob(yard, pool, pool, name=f"torch by {how}").over("SUCCEEDED")

    return run


@pytest.mark.parametrize(
    ("how", "size"),
    [
        ("python", 2),
        ("torchrun", 4),
        pytest.param("torchrun c10d", 4, marks=pytest.mark.slow),
        ("cluster spec", 2),
    ],
)
def test_S4_40_S4_02_every_rank_finds_the_group_and_ends_with_the_same_weights(trained, how, size):
    logs = [trained(how).log(name) for name in ("workerpool0-0", "workerpool1-0")]
    ranks = sorted(match for log in logs for match in RANK.findall(log))
    assert [rank for rank, *_ in ranks] == [str(rank) for rank in range(size)], logs
    assert {of for _, of, *_ in ranks} == {str(size)}
    assert len({host for _, _, host, *_ in ranks}) == 2
    assert {total for *_, total, _ in ranks} == {str(sum(range(size)))}
    assert len({weights for *_, weights in ranks}) == 1


def lose_the_worker(yard, name, **options):
    """Training that goes on until the worker is killed."""
    pool = {"command": ["torch-ddp", "--steps", "100000000"], "gpus": 5}
    observed = ObservedJob(yard, pool, pool, name=name, **options).running()
    observed.wait_for_line("goes on", "workerpool1-0")
    kill_replica(yard, observed.run("workerpool1-0"), "torch-ddp")
    return observed


@pytest.mark.slow
def test_the_error_of_a_peer_comes_after_the_replica_that_was_lost_first(yard):
    observed = lose_the_worker(yard, "loses a worker").over("FAILED")
    message = observed.error["message"]
    assert message.startswith("The replica workerpool1-0 was lost first: it was killed by SIGKILL on gpu")
    assert message.endswith(
        "The replica workerpool0-0 exited with a non-zero status of 1. Termination reason: Error."
    )


@pytest.mark.slow
def test_with_a_restart_of_all_the_loss_of_a_worker_fails_nothing(yard):
    """The peers' errors may be reported before the loss: then the whole job is run again, else all are restarted."""
    scheduling = {"restartJobOnWorkerRestart": True}
    observed = lose_the_worker(yard, "restarts together", scheduling=scheduling)
    for name in ("workerpool0-0", "workerpool1-0"):
        wait_for(lambda name=name: len(observed.runs(name)) > 1, f"another run of {name}")
        observed.wait_for_line("goes on", name, observed.run(name)["id"])
    assert observed.state == "RUNNING"
    yard.client.cancel(observed.id)
    observed.over("CANCELLED")
