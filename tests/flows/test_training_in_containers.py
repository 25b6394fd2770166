"""The torch program that trains on hosts trains over two hosts in containers, with GPUs, and as a Python package.

The image has the system's Python and its torch, and comes from the storage: 650 MB.
"""

from __future__ import annotations

import shutil

import pytest

from tests.behaviour.test_torch import RANK
from tests.flows.test_brought import Storage
from tests.flows.test_containers import none_is_left, pool, submit
from tests.harness import fake_cards
from tests.harness.containers import give_podman
from tests.harness.framework_images import framework_image
from tests.harness.hosts import Fleet
from tests.harness.product import Product
from tests.harness.reduction import PROGRAMS
from tests.unit.agents.runner.test_environments import wheel

pytestmark = [pytest.mark.needs_namespaces, pytest.mark.exhaustive]

TRAINERS = ("workerpool0-0", "workerpool1-0")
WARM_UP = """
import torch, torch.distributed
from torch.nn.parallel import DistributedDataParallel
torch.nn.Linear(4, 1)(torch.randn(8, 4)).sum().backward()
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """The archive of the image."""
    place = tmp_path_factory.mktemp("torch")
    yield framework_image(place, "torch_ddp.py", WARM_UP)
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="module")
def yard():
    fleet = Fleet(2, disk_mb=3000, cgroups=True).boot()
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


def trained(client, job):
    """All ranks were one group, on two hosts, and ended with the same weights."""
    client.wait(job, "SUCCEEDED", timeout=600)
    ranks = sorted(match for name in TRAINERS for match in RANK.findall(client.log(job, name).decode()))
    assert [(rank, of) for rank, of, *_ in ranks] == [("0", "2"), ("1", "2")], ranks
    assert len({host for _, _, host, *_ in ranks}) == 2
    assert {total for *_, total, _ in ranks} == {"1"} and len({weights for *_, weights in ranks}) == 1


# With 5 GPUs each, two replicas never share a host.
def test_in_containers(yard, client, image):
    uri = Storage(client).put("torch.tar", image.read_bytes())
    job = submit(yard, *[pool(uri, gpus=5) for _ in TRAINERS], name="torch in containers")
    trained(client, job)
    none_is_left(yard)
    yard.check()


def test_as_a_python_package(yard, client):
    program = (PROGRAMS / "torch_ddp.py").read_text()
    uri = Storage(client).put("trainer-1-py3-none-any.whl", wheel("trainer", "1", program))
    package = {"executorImageUri": "host", "packageUris": [uri], "pythonModule": "trainer"}
    of_package = {**pool("host", gpus=5), "pythonPackageSpec": package}
    del of_package["containerSpec"]
    trained(client, submit(yard, of_package, of_package, name="torch as a package"))
    yard.check()
