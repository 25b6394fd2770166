"""Reduction Server through the whole product, with torch on the CPUs of hosts. What GPUs would change, and what no test
shows of that, is in docs/reduction-on-gpus.md."""

from __future__ import annotations

import re
import signal

import pytest

from jobs.rules.spec.reduction import IMAGES
from tests.behaviour.observed_job import ObservedJob, host_of, kill_replica
from tests.flows.test_brought import Storage, archive
from tests.harness.product.client import Refused, job_spec
from tests.harness.wait_and_processes import wait_for
from tests.unit.agents.runner.test_environments import source_archive

REDUCERS = {"replicaCount": "2", "containerSpec": {"imageUri": IMAGES[0]}}
BY_RUNTIME = {"replicaCount": "2", "trainyard": {"runtime": "reduction-server", "wire": "bf16"}}


class ReducedJob(ObservedJob):
    """Two replicas that train, on two hosts, and two reducers."""

    def __init__(
        self, yard, *options, reducers=REDUCERS, gpus=5, program="reduced-training", pools=(), **changes
    ):
        self.yard = yard
        pool = {"command": [program, *options], "gpus": gpus}
        self.document = job_spec(pool, pool, ["true"], name="reduced", **changes)
        own = self.document["jobSpec"]["workerPoolSpecs"]
        own[:] = [*(pools or own[:2]), reducers]
        self.id = yard.submit(self.document)

    def trains(self, attempt=1):
        for name in ("workerpool0-0", "workerpool1-0"):
            run = wait_for(
                lambda name=name: self.runs(name)[attempt - 1 :], f"attempt {attempt} of {name}", 300
            )
            self.wait_for_line("goes on", name, run[0]["id"])
        return self


@pytest.fixture(scope="module")
def trained(yard):
    return ReducedJob(yard, "--steps", "40").over("SUCCEEDED")


def test_S4_26_S4_31_the_third_pool_with_the_image_reduces_the_gradients_of_an_unmodified_program(trained):
    assert "gradients go through 2 reducers, as they are on the wire" in trained.log("workerpool0-0")
    for name in ("workerpool2-0", "workerpool2-1"):
        assert "all 2 trainers are connected" in trained.log(name)
    for name in ("workerpool0-0", "workerpool1-0"):
        assert "is done" in trained.log(name)


def test_S4_28_S4_29_every_option_of_torchs_DistributedDataParallel_goes_through_the_reducers(yard):
    observed = ReducedJob(yard, reducers=BY_RUNTIME, program="reduced-options").over("SUCCEEDED")
    assert "gradients go through 2 reducers, bf16 on the wire" in observed.log("workerpool0-0")
    found = re.findall(r"^(.+): (True|False)$", observed.log("workerpool1-0"), re.M)
    assert len(found) > 15
    assert [name for name, right in found if right == "False"] == []


# Only with the code of the job beside it.
PACKAGED = """import os
assert os.path.exists("train.py")
os.execvp("reduced-training", ["reduced-training", "--steps", "10"])
"""


@pytest.mark.slow
def test_reducers_beside_a_package_and_code_have_the_environment_and_no_code(yard):
    storage = Storage(yard.client)
    package = {
        "executorImageUri": "host",
        "packageUris": [storage.put("trainer-0.1.tar.gz", source_archive(PACKAGED))],
        "pythonModule": "aiplatform_custom_trainer_script.task",
    }
    trainer = {
        "replicaCount": "1",
        "pythonPackageSpec": package,
        "trainyard": {"code": {"artifact": storage.artifact(archive("pass"))}},
    }
    observed = ReducedJob(yard, pools=[trainer, trainer]).over("SUCCEEDED")
    for name in ("workerpool2-0", "workerpool2-1"):
        assert "all 2 trainers are connected" in observed.log(name)
    [run] = observed.runs("workerpool2-0")
    order = yard.query(f"SELECT \"order\" FROM jobs_run WHERE id = '{run['id']}'")[0]["order"]
    assert "environment" in str(order) and "tree" not in str(order)


def test_the_bytes_and_the_waiting_are_on_the_page_of_the_job(trained):
    def names():
        url = f"{trained.yard.url}/api/v1/jobs/{trained.id}/reports"
        return {each["name"] for each in trained.yard.client.call("GET", url).json()["series"]}

    wanted = {
        "reduction/trainer_sent_mb",
        "reduction/trainer_waiting_percent",
        "reduction/reducer_idle_percent",
    }
    wait_for(lambda: wanted <= names(), "the figures of the reduction")


@pytest.mark.slow
def test_a_lost_reducer_runs_the_whole_job_again(yard):
    observed = ReducedJob(yard).trains()
    run = observed.run("workerpool2-1")
    host = host_of(yard, run)
    pid = next(pid for pid, command in host.processes(run["id"]) if "trainyard_reduction.reducer" in command)
    host.run_inside("kill", "-KILL", str(pid))
    observed.trains(attempt=2)
    first = [observed.runs(name)[0] for name in ("workerpool0-0", "workerpool1-0")]
    # A replica that did not abort before the other one did is stopped for the next attempt.
    assert signal.SIGABRT in {run["exitSignal"] for run in first}
    assert {run["exitCode"] for run in first} <= {None, 0}
    yard.client.cancel(observed.id)
    observed.over("CANCELLED")


@pytest.mark.slow
def test_a_reducer_that_exits_with_0_while_others_train_runs_the_whole_job_again(yard):
    """Its Python has done as if all were well, and the trainers have lost it."""
    named = {**REDUCERS, "containerSpec": {"imageUri": IMAGES[0], "command": ["ending-reducer"]}}
    observed = ReducedJob(yard, reducers=named).trains()
    run = observed.run("workerpool2-1")
    host_of(yard, run).run_inside("touch", f"/tmp/end-{run['id']}")
    observed.trains(attempt=2)
    assert observed.runs("workerpool2-1")[0]["exitCode"] == 0
    told = " ".join(line["cause"] for line in observed.moves())
    # Who is heard first, the reducer or a trainer that has aborted, is chance.
    assert "workerpool2-1 exited with status 0" in told or "SIGABRT" in told
    assert "the whole job is run again, retry 1 of 3" in told
    yard.client.cancel(observed.id)
    observed.over("CANCELLED")


@pytest.mark.slow
def test_a_lost_host_of_a_reducer_hangs_nobody(yard):
    observed = ReducedJob(yard, reducers={**REDUCERS, "replicaCount": "1"}).trains()
    host = host_of(yard, observed.run("workerpool2-0"))
    trainers = ("workerpool0-0", "workerpool1-0")
    apart = [name for name in trainers if host_of(yard, observed.run(name)) is not host]
    host.cut()
    try:
        wait_for(lambda: "is lost" in "".join(map(observed.log, apart)), "a trainer to notice", 120)
    finally:
        host.restore()
    observed.trains(attempt=2)
    yard.client.cancel(observed.id)
    observed.over("CANCELLED")


@pytest.mark.slow
def test_a_killed_worker_is_named_and_hangs_nobody(yard):
    """As without reducers: its peer fails because of it, and the job says who was lost first."""
    observed = ReducedJob(yard).trains()
    kill_replica(yard, observed.run("workerpool1-0"), "reduced-training")
    observed.over("FAILED", timeout=120)
    assert "workerpool1-0 was lost first" in observed.error["message"]
    # How the kernel ends the connections of a killed process depends on what was on its way.
    assert re.search("trainer 1 (has lost its connection|is lost)", observed.log("workerpool0-0"))


# What anybody on the network of the hosts can do: bytes that are no greeting, a connection that says nothing, and a
# trainer of another job, which has another secret.
STRANGER = """
import glob, os, socket, sys, time
sys.path.insert(0, glob.glob(sys.argv[1] + "/.trainyard/*/reduction/*")[0])
from trainyard_reduction.wire import Trainer, Unfit, greet, tune
host, _, port = sys.argv[2].rpartition(":")
kept = []
for data in [b"GET / HTTP/1.1\\r\\n\\r\\n", b"TYRS" + bytes(200), os.urandom(4096), b""] * 4:
    kept.append(socket.create_connection((host, int(port)), 10))
    kept[-1].sendall(data)
connection = socket.create_connection((host, int(port)), 10)
tune(connection)
try:
    greet(connection, Trainer(0, 2, os.urandom(16)), b"another secret", time.monotonic() + 10)
except (Unfit, OSError) as problem:
    print("refused:", problem)
"""


@pytest.mark.slow
def test_strangers_and_a_wrong_secret_at_the_port_of_a_reducer_disturb_nobody(yard):
    observed = ReducedJob(yard, "--steps", "3000").trains()
    row = yard.query(f"SELECT port FROM jobs_run WHERE id = '{observed.run('workerpool2-0')['id']}'")[0]  # noqa: S608
    address = f"{host_of(yard, observed.run('workerpool2-0')).address}:{row['port']}"
    for name in ("workerpool0-0", "workerpool1-0"):  # hosts that have our modules
        host = host_of(yard, observed.run(name))
        said = host.run_inside("python3", "-c", STRANGER, host.home, address).stdout
        assert "refused: it does not know the secret of this job" in said
    observed.over("SUCCEEDED")
    assert "turned away" in observed.log("workerpool2-0")
    assert len(observed.runs("workerpool2-0")) == 1


@pytest.mark.slow
def test_an_error_of_the_program_fails_the_job_at_once(yard):
    observed = ReducedJob(yard, "--raises-at", "20").over("FAILED")
    assert "exited with a non-zero status of 1" in observed.error["message"]
    assert len(observed.runs("workerpool1-0")) == 1


@pytest.mark.slow
def test_a_Python_without_numpy_is_named_before_the_reducer_starts(yard):
    missing = {**REDUCERS, "containerSpec": {"imageUri": IMAGES[0], "command": ["/usr/bin/false"]}}
    observed = ReducedJob(yard, reducers=missing).over("FAILED")
    assert "needs numpy" in observed.error["message"]
    assert "/usr/bin/false" in observed.error["message"]
    assert "command of workerpool2" in observed.error["message"]
    rows = yard.query(f"SELECT started_at FROM jobs_run WHERE job_id = {observed.id}")  # noqa: S608
    assert [row["started_at"] for row in rows] == [None] * 4, "no replica was started"


# `trained` has the first, and the rules' own tests have all.
OTHER_IMAGES = [*(pytest.param(image, marks=pytest.mark.exhaustive) for image in IMAGES[:-1]), IMAGES[-1]]


@pytest.mark.parametrize("image", OTHER_IMAGES)
def test_S4_31_S4_32_the_image_of_each_region_is_recognised(yard, image):
    observed = ReducedJob(yard, "--steps", "10", reducers={"containerSpec": {"imageUri": image}}).over(
        "SUCCEEDED"
    )
    assert "all 2 trainers are connected" in observed.log("workerpool2-0")


def test_S4_34_reducers_with_a_GPU_are_refused(yard):
    machine = {"acceleratorType": "NVIDIA_H100_80GB", "acceleratorCount": 1}
    with pytest.raises(Refused) as refused:
        ReducedJob(yard, reducers={**REDUCERS, "machineSpec": machine})
    assert refused.value.status == 400
    assert "uses no GPU" in str(refused.value)


def test_S4_27_S4_33_advice_is_on_the_page_of_the_job(yard):
    """Four replicas train on CPUs, with two reducers."""
    pool = {"command": ["true"]}
    document = job_spec(pool, {**pool, "replicas": 3}, ["true"], name="advice")
    document["jobSpec"]["workerPoolSpecs"][2] = REDUCERS
    job = yard.submit(document)
    try:
        url = f"{yard.url}/api/v1/jobs/{job}"
        text = " ".join(each["text"] for each in yard.client.call("GET", url).json()["advice"])
        assert "for workers with GPUs" in text
        # The cards of hosts in namespaces have 10 Gbit/s; of hosts on loopback ports no speed is known.
        known, unknown = (
            "has 20 Gbit/s in all, and the 4 replicas that train 40",
            "2 reducers for 4 replicas",
        )
        assert known in text or unknown in text
    finally:
        yard.client.cancel(job)
