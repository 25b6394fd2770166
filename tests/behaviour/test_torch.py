"""Real training with torch over two hosts: by plain python, by a bare torchrun with either rendezvous, and from
CLUSTER_SPEC alone. The hosts' own names are 127.0.1.1, as Debian and Ubuntu have it."""

from __future__ import annotations

import re

import pytest

from tests.behaviour.observed_job import ObservedJob

# torch 1.13 under Python 3.11 fails with its own default for redirects, so one is given; tee shows the output here.
DEBIAN = {"PET_REDIRECTS": "1", "PET_TEE": "1"}
RANK = re.compile(r"rank (\d+) of (\d+) on (\w+): sum (\d+) weights (\w+)")


@pytest.fixture(scope="module")
def trained(yard):
    """With 5 GPUs each, two replicas never share a host. torchrun would start 5 processes in each; 2 are enough."""
    commands = {
        "python": ["torch-ddp"],
        "torchrun": ["torchrun", "/usr/local/bin/torch-ddp"],
        "torchrun c10d": ["torchrun", "--rdzv_backend=c10d", "/usr/local/bin/torch-ddp"],
        "cluster spec": ["torch-ddp", "--by", "cluster-spec"],
    }
    observed_jobs = {}
    for name, command in commands.items():
        pool = {"command": command, "gpus": 5, "env": {"PET_NPROC_PER_NODE": "2", **DEBIAN}}
        observed_jobs[name] = ObservedJob(yard, pool, pool, name=f"torch by {name}")
    return {name: observed.over("SUCCEEDED") for name, observed in observed_jobs.items()}


@pytest.mark.parametrize(
    ("how", "size"), [("python", 2), ("torchrun", 4), ("torchrun c10d", 4), ("cluster spec", 2)]
)
def test_S4_40_S4_02_every_rank_finds_the_group_and_ends_with_the_same_weights(trained, how, size):
    logs = [trained[how].log(name) for name in ("workerpool0-0", "workerpool1-0")]
    ranks = sorted(match for log in logs for match in RANK.findall(log))
    assert [rank for rank, *_ in ranks] == [str(rank) for rank in range(size)], logs
    assert {of for _, of, *_ in ranks} == {str(size)}
    assert len({host for _, _, host, *_ in ranks}) == 2
    assert {total for *_, total, _ in ranks} == {str(sum(range(size)))}
    assert len({weights for *_, weights in ranks}) == 1
