"""TensorFlow and JAX over several hosts. Large to install, slow to import: only `make programs` runs this."""

from __future__ import annotations

import re

import pytest

from tests.behaviour.observed_job import ObservedJob
from tests.harness.hosts import Fleet
from tests.harness.product import Product
from tests.harness.product.product import ROOT

pytestmark = [pytest.mark.needs_namespaces, pytest.mark.timeout(900)]
RANK = re.compile(r"(\w+) (\d+) of (\d+) on (\w+): \w+ (\w+)")
PATIENCE = 400


@pytest.fixture(scope="module")
def yard():
    with Fleet(3, binds={"/opt/programs": ROOT / "var" / "programs"}) as fleet, Product() as product:
        yield product.with_admin().with_hosts(fleet)
        product.check()


def program(name, framework, gpus=5):
    return {
        "command": [name],
        "gpus": gpus,
        "env": {"PYTHONPATH": f"/opt/programs/{framework}", "TF_CPP_MIN_LOG_LEVEL": "2"},
    }


def test_jax_distributed(yard):
    pool = program("jax-distributed", "jax")
    observed = ObservedJob(yard, pool, pool, name="jax").over("SUCCEEDED", PATIENCE)
    found = [RANK.findall(observed.log(name)) for name in ("workerpool0-0", "workerpool1-0")]
    assert [ranks[-1][1:3] + ranks[-1][4:] for ranks in found] == [("0", "2", "1"), ("1", "2", "1")]
    assert len({ranks[-1][3] for ranks in found}) == 2


def test_S4_65_S4_66_multi_worker_mirrored_strategy_needs_nothing_but_tf_config(yard):
    pool = program("tf-multiworker", "tensorflow")
    observed = ObservedJob(yard, pool, pool, name="multi-worker").over("SUCCEEDED", PATIENCE)
    log = observed.wait_for_line("weights", "workerpool0-0")
    [chief] = RANK.findall(log)
    assert chief[:3] == ("chief", "0", "2")
    workers = RANK.findall(observed.log("workerpool1-0"))
    assert all(worker[4] == chief[4] for worker in workers)


def test_S4_66_parameter_server_strategy(yard):
    pools = [program("tf-parameter-server", "tensorflow") for _ in range(3)]
    observed = ObservedJob(yard, *pools, name="parameter server").over("SUCCEEDED", PATIENCE)
    assert "total 8 on /job:ps" in observed.log()
    assert "worker 0 serves" in observed.log("workerpool1-0") and "ps 0 serves" in observed.log(
        "workerpool2-0"
    )
    assert [observed.replica(f"workerpool{n}-0")["state"] for n in (1, 2)] == ["STOPPED", "STOPPED"]
