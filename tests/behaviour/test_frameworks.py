"""Real programs over several hosts: torch 2, Lightning, Accelerate, DeepSpeed, JAX, TensorFlow, MPI.

Large to install, slow to import: only `make programs` runs this. The hosts' own names are 127.0.1.1 there, as Debian
and Ubuntu have it.
"""

from __future__ import annotations

import re

import pytest

from tests.behaviour.observed_job import ObservedJob
from tests.harness.hosts import Fleet
from tests.harness.product import Product
from tests.harness.product.product import ROOT

pytestmark = [pytest.mark.needs_namespaces, pytest.mark.timeout(900)]
RANK = re.compile(r"(\w+) (\d+) of (\d+) on (\w+): .*?(\w+)$", re.M)
PATIENCE = 400
# A look is taken every 20 s.
UNCONNECTED_S = 44
TRAINERS = ("workerpool0-0", "workerpool1-0")
TORCHRUN = ["python3", "-m", "torch.distributed.run"]


@pytest.fixture(scope="module")
def yard():
    binds = {"/opt/programs": ROOT / "var" / "programs"}
    with Fleet(3, binds=binds) as fleet, Product(UNCONNECTED_S=UNCONNECTED_S) as product:
        yield product.with_admin().with_hosts(fleet)
        product.check()


def program(framework, *command, gpus=5, **env):
    """With 5 GPUs each, two replicas never share a host."""
    path = ":".join(f"/opt/programs/{each}" for each in framework.split())
    return {
        "command": list(command),
        "gpus": gpus,
        "env": {"PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "2", "OMP_NUM_THREADS": "1", **env},
    }


def over(observed):
    """Wait for its success. A job that hangs is cancelled: it would keep the others from their GPUs."""
    try:
        return observed.over("SUCCEEDED", PATIENCE)
    except AssertionError:
        observed.yard.client.cancel(observed.id)
        raise


def trained(yard, pool, name, size, **options):
    """Run it in two replicas: all processes were one group, on two hosts, and ended with the same weights."""
    observed = over(ObservedJob(yard, pool, pool, name=name, **options))
    logs = [observed.log(replica) for replica in TRAINERS]
    found = sorted(match[1:] for log in logs for match in RANK.findall(log))
    assert [(rank, of) for rank, of, _, _ in found] == [(str(n), str(size)) for n in range(size)], logs
    assert len({host for _, _, host, _ in found}) == 2
    assert len({result for *_, result in found}) == 1
    assert "UNCONNECTED" not in flags(observed)
    return observed


def flags(observed):
    told = observed.yard.client.call("GET", f"{observed.yard.url}/api/v1/jobs/{observed.id}").json()
    return [flag["flag"] for flag in told["flags"]]


@pytest.mark.parametrize(
    ("how", "command", "size"),
    [
        ("python", ["python3", "/usr/local/bin/torch-ddp"], 2),
        ("torchrun", [*TORCHRUN, "/usr/local/bin/torch-ddp"], 4),
        ("torchrun c10d", [*TORCHRUN, "--rdzv-backend=c10d", "/usr/local/bin/torch-ddp"], 4),
    ],
)
def test_torch_2_needs_no_option_with_either_rendezvous(yard, how, command, size):
    trained(yard, program("torch", *command, PET_NPROC_PER_NODE="2"), how, size)


def test_torchrun_alone_starts_a_process_for_each_gpu_of_a_single_replica(yard):
    pool = program("torch", *TORCHRUN, "/usr/local/bin/torch-ddp", gpus=2)
    log = over(ObservedJob(yard, pool, name="one replica")).log()
    assert sorted(match[1:3] for match in RANK.findall(log)) == [("0", "2"), ("1", "2")], log


def test_parameter_servers_and_evaluators_are_not_waited_for(yard):
    """The rendezvous of two trainers waited for all four replicas, and hung."""
    pool = program("torch", *TORCHRUN, "/usr/local/bin/torch-ddp", gpus=5, PET_NPROC_PER_NODE="1")
    other = {"command": ["sleep", "600"]}
    observed = over(ObservedJob(yard, pool, pool, other, other, name="with servers"))
    assert [match[1:3] for match in RANK.findall(observed.log())] == [("0", "2")]


def test_lightning_finds_its_nodes(yard):
    trained(yard, program("torch", "python3", "/usr/local/bin/lightning-fit"), "lightning", 4)


def test_accelerate_trains_one_model_with_torchrun(yard):
    command = [*TORCHRUN, "/usr/local/bin/accelerate-train"]
    trained(yard, program("torch", *command, PET_NPROC_PER_NODE="2"), "accelerate", 4)


def test_accelerate_without_a_launcher_connects_on_cpus_and_nobody_calls_it_unconnected(yard):
    """On GPUs it would train a model in each replica: there it asks for LOCAL_RANK, which a launcher sets."""
    command = ["python3", "/usr/local/bin/accelerate-train", "--seconds", str(UNCONNECTED_S)]
    trained(yard, program("torch", *command), "no launcher", 2)


def test_deepspeed_reads_the_gpus_and_finds_its_group(yard):
    command = [*TORCHRUN, "/usr/local/bin/deepspeed-train"]
    trained(yard, program("torch deepspeed", *command, PET_NPROC_PER_NODE="2"), "deepspeed", 4)


def test_mpi_over_hosts_that_cannot_log_in_to_each_other(yard):
    path = {"LD_LIBRARY_PATH": "/opt/programs/mpi"}
    pool = program("mpi", "python3", "/usr/local/bin/mpi-ring", **path)
    observed = over(ObservedJob(yard, pool, pool, name="mpi"))
    found = sorted(match[1:] for match in RANK.findall(observed.log()))
    assert [(rank, of, total) for rank, of, _, total in found] == [(str(n), "4", "6") for n in range(4)]
    assert len({host for _, _, host, _ in found}) == 2


def test_jax_distributed(yard):
    trained(yard, program("jax", "jax-distributed", "--hostname"), "jax", 2)


def test_S4_65_S4_66_multi_worker_mirrored_strategy_needs_nothing_but_tf_config(yard):
    pool = program("tensorflow", "tf-multiworker")
    observed = over(ObservedJob(yard, pool, pool, name="multi-worker"))
    log = observed.wait_for_line("weights", "workerpool0-0")
    [chief] = RANK.findall(log)
    assert chief[:3] == ("chief", "0", "2")
    workers = RANK.findall(observed.log("workerpool1-0"))
    assert all(worker[4] == chief[4] for worker in workers)


def test_S4_66_parameter_server_strategy(yard):
    pools = [program("tensorflow", "tf-parameter-server") for _ in range(3)]
    observed = over(ObservedJob(yard, *pools, name="parameter server"))
    assert "total 8 on /job:ps" in observed.log()
    assert "worker 0 serves" in observed.log("workerpool1-0") and "ps 0 serves" in observed.log(
        "workerpool2-0"
    )
    assert [observed.replica(f"workerpool{n}-0")["state"] for n in (1, 2)] == ["STOPPED", "STOPPED"]
