"""TensorFlow's program of two hosts runs there in containers, of an image in the storage, and as a Python package.

The image is over 1 GB. Only `make programs` runs this, as test_frameworks.py.
"""

from __future__ import annotations

import shutil

import pytest

from tests.behaviour.test_frameworks import RANK
from tests.flows.test_brought import Storage
from tests.flows.test_containers import none_is_left, pool, submit
from tests.harness import fake_cards
from tests.harness.containers import give_podman
from tests.harness.framework_images import framework_image
from tests.harness.hosts import Fleet
from tests.harness.product import Product
from tests.harness.product.product import ROOT
from tests.harness.reduction import PROGRAMS
from tests.unit.agents.runner.test_environments import wheel

pytestmark = [pytest.mark.needs_namespaces, pytest.mark.timeout(1200)]
PACKAGES = ROOT / "var" / "programs" / "tensorflow"
TRAINERS = ("workerpool0-0", "workerpool1-0")
ENV = {"TF_CPP_MIN_LOG_LEVEL": "2", "OMP_NUM_THREADS": "1"}
WARM_UP = "import tensorflow as tf; tf.function(lambda: tf.random.normal([8, 4]) @ tf.zeros([4, 1]))()"


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    place = tmp_path_factory.mktemp("tensorflow")
    yield framework_image(place, "tf_multiworker.py", WARM_UP, PACKAGES)
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="module")
def yard():
    fleet = Fleet(2, disk_mb=10000, cgroups=True, binds={"/opt/programs": ROOT / "var" / "programs"}).boot()
    product = Product()
    try:
        for host in fleet:
            fake_cards.make_nodes(host)
            give_podman(host, "127.0.0.1:1")
            fake_cards.write_spec(host, host.gpu_uuids())
        yield product.start().with_admin().with_hosts(fleet)
    finally:
        product.close()
        fleet.close()


def with_env(document, part, **env):
    document[part]["env"] = [{"name": name, "value": value} for name, value in {**ENV, **env}.items()]
    return document


def trained(yard, client, job):
    """Both replicas were one cluster, on two hosts, with the same weights. The job ends with its chief, who does not
    wait for the other's last line."""
    client.wait(job, "SUCCEEDED", "FAILED", timeout=900)
    logs = [client.log(job, name).decode() for name in TRAINERS]
    told = yard.query(f"SELECT cause FROM jobs_transition WHERE job_id = {job} ORDER BY id")
    assert client.state(job) == "SUCCEEDED", (told, logs)
    [chief] = RANK.findall(logs[0])
    assert chief[:3] == ("chief", "0", "2"), logs
    workers = RANK.findall(logs[1])
    assert all(worker[:3] == ("worker", "0", "2") and worker[4] == chief[4] for worker in workers), logs
    hosts = yard.query(f"SELECT host_id FROM jobs_run WHERE job_id = {job} AND started_at IS NOT NULL")
    assert len({row["host_id"] for row in hosts}) == 2


def test_multi_worker_mirrored_strategy_in_containers(yard, client, image):
    uri = Storage(client).put("tensorflow.tar", image.read_bytes())
    pools = [with_env(pool(uri, gpus=5), "containerSpec") for _ in TRAINERS]
    trained(yard, client, submit(yard, *pools, name="tensorflow in containers"))
    none_is_left(yard)
    yard.check()


def test_multi_worker_mirrored_strategy_as_a_python_package(yard, client):
    program = (PROGRAMS / "tf_multiworker.py").read_text()
    uri = Storage(client).put("trainer-1-py3-none-any.whl", wheel("trainer", "1", program))
    package = {"executorImageUri": "host", "packageUris": [uri], "pythonModule": "trainer"}
    of_package = {**pool("host", gpus=5), "pythonPackageSpec": package}
    del of_package["containerSpec"]
    with_env(of_package, "pythonPackageSpec", PYTHONPATH="/opt/programs/tensorflow")
    trained(yard, client, submit(yard, of_package, of_package, name="tensorflow as a package"))
    yard.check()
