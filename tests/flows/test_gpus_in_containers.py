"""The GPUs of a container on a real host: by podman without root and a CDI spec.

The cards are device nodes without a driver. What no test can show without a card: that CUDA finds the cards by these
nodes and libraries.
"""

from __future__ import annotations

import json

import pytest

from tests.flows.test_containers import containers, none_is_left, podman_of, pool, submit
from tests.harness import fake_cards
from tests.harness.containers import IMAGE, give_podman, root_archive
from tests.harness.hosts import Fleet
from tests.harness.product import Product
from tests.harness.product.product import where_is

pytestmark = pytest.mark.needs_namespaces

SHOWN = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "TRAINYARD_GPU_UUIDS", "NVIDIA_VISIBLE_DEVICES")
# Names of nodes, then variables, then what else the spec brings. One line: the log is read when it is whole.
LOOK = (
    'cd /dev; for n in nvidia*; do test -c $n && echo -n "$n "; done; '
    + "; ".join(f'echo -n "{name}=${name} "' for name in SHOWN)
    + '; echo -n "$(ls /usr/lib/x86_64-linux-gnu 2>/dev/null)"; echo .; sleep 600'
)


@pytest.fixture(scope="module")
def yard(tmp_path_factory):
    fleet = Fleet(1, disk_mb=400, cgroups=True).boot()
    product = Product()
    try:
        [host] = fleet
        fake_cards.make_nodes(host)  # first of all: podman without root keeps the mounts of its first start
        give_podman(host, "127.0.0.1:1")
        archive = root_archive(tmp_path_factory.mktemp("image"))
        host.path("/mnt/shared/root.tar").write_bytes(archive.read_bytes())
        host.run_inside(*podman_of(host, "import", "/mnt/shared/root.tar", IMAGE))
        fake_cards.write_spec(host, host.gpu_uuids())
        product.start().with_admin().with_hosts(fleet)
        yield product
    finally:
        product.close()
        fleet.close()


def seen_by(yard, client, name, gpus=2):
    """(job, the nodes, the variables, the libraries) as a program in the container saw them."""
    job = submit(yard, pool(IMAGE, LOOK, gpus=gpus), name=name)
    words = client.wait_for_log(job, ".\n", timeout=60).decode().split()
    nodes = [word for word in words if word.startswith("nvidia")]
    variables = dict(word.split("=", 1) for word in words if "=" in word)
    return job, nodes, variables, words[-1]


def end(yard, client, *jobs):
    for job in jobs:
        client.cancel(job)
        client.wait(job, "CANCELLED")
    none_is_left(yard)


def line_of(yard):
    [row] = yard.query("SELECT checklist FROM agents_host")
    return next(line for line in row["checklist"] if line["name"] == "Runtimes")


def check_again(yard):
    yard.command("host", "add", *where_is(yard.fleet[0]), "--accept-first-key")
    return line_of(yard)


def test_two_jobs_get_two_gpus_each_and_see_no_others(yard, client):
    uuids = yard.fleet[0].gpu_uuids()
    assert "CDI" not in json.dumps(line_of(yard))
    first, nodes, variables, libraries = seen_by(yard, client, "first")
    minors = fake_cards.minors_of(len(uuids))

    def of(given):
        return {f"nvidia{minors[uuids.index(uuid)]}" for uuid in given} | {"nvidiactl"}

    given = variables["TRAINYARD_GPU_UUIDS"].split(",")
    assert len(given) == 2 and set(nodes) == of(given)
    assert given == sorted(given, key=uuids.index), "in the order of the bus, as CUDA numbers them"
    assert (variables["CUDA_VISIBLE_DEVICES"], variables["CUDA_DEVICE_ORDER"]) == ("0,1", "PCI_BUS_ID")
    assert variables["NVIDIA_VISIBLE_DEVICES"] == "void" and libraries.startswith("libcuda.so.550.54.15")
    [run] = yard.runs(first)
    assert given == run["gpu_uuids"]
    second, others, its_variables, _ = seen_by(yard, client, "second")
    its_own = its_variables["TRAINYARD_GPU_UUIDS"].split(",")
    assert not set(its_own) & set(given) and set(others) == of(its_own)
    assert its_variables["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert len(containers(yard.fleet[0])) == 2
    end(yard, client, first, second)
    yard.check()


def test_a_job_without_gpus_sees_none(yard, client):
    job, nodes, variables, _ = seen_by(yard, client, "none", gpus=0)
    assert not nodes
    assert variables["TRAINYARD_GPU_UUIDS"] == "" and variables["NVIDIA_VISIBLE_DEVICES"] == ""
    end(yard, client, job)
    yard.check()


@pytest.mark.slow
def test_a_host_without_a_spec_says_so_and_gives_the_nodes_alone(yard, client):
    host = yard.fleet[0]
    host.path(fake_cards.SPEC).unlink()
    try:
        line = check_again(yard)
        assert line["ok"] is None and "no CDI spec names its GPUs" in line["text"]
        assert "nvidia-ctk cdi generate" in line["fix"] and "are refused here" in line["fix"]
        refused = submit(yard, pool(IMAGE, LOOK, gpus=2), name="no nodes")
        client.wait(refused, "FAILED", timeout=200)
        assert "generate a CDI spec" in yard.runs(refused)[-1]["message"]
        fake_cards.tell_minors(host)
        assert "containers get the device nodes alone" in check_again(yard)["fix"]
        job, nodes, variables, libraries = seen_by(yard, client, "nodes")
        uuids = host.gpu_uuids()
        given = variables["TRAINYARD_GPU_UUIDS"].split(",")
        minors = {f"nvidia{fake_cards.minors_of(len(uuids))[uuids.index(uuid)]}" for uuid in given}
        assert set(nodes) == minors | {"nvidiactl"} and len(given) == 2
        assert (variables["NVIDIA_VISIBLE_DEVICES"], libraries) == ("", ".")
        end(yard, client, job)
    finally:
        fake_cards.write_spec(host, host.gpu_uuids())
    yard.check()


@pytest.mark.slow
def test_a_spec_that_names_other_cards_than_the_driver_is_told(yard, client):
    host = yard.fleet[0]
    uuids = host.gpu_uuids()
    try:
        fake_cards.write_spec(host, ["GPU-0ld00000-0000-4000-8000-000000000000", *uuids[1:]])
        line = check_again(yard)
        assert line["ok"] is None and f"its CDI spec does not name {uuids[0]}" in line["text"]
        assert (
            "names GPU-0ld00000-0000-4000-8000-000000000000, which nvidia-smi does not list" in line["text"]
        )
        fake_cards.write_spec(host, [str(index) for index in range(len(uuids))])
        line = check_again(yard)
        assert "does not name" in line["text"] and "--device-name-strategy=uuid" in line["fix"]
    finally:
        fake_cards.write_spec(host, uuids)
    assert "CDI" not in check_again(yard)["text"]
    yard.check()
