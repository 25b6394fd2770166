"""Jobs in containers of a Docker that belongs to the login of a real host, and not to root."""

from __future__ import annotations

import contextlib
import signal

import pytest

from tests.flows.test_brought import Storage
from tests.harness.containers import IMAGE, root_archive
from tests.harness.docker_without_root import DockerWithoutRoot
from tests.harness.hosts import Fleet
from tests.harness.hosts.disk import UID
from tests.harness.product import Product
from tests.harness.product.held_shell import HeldShell
from tests.harness.wait_and_processes import wait_for

pytestmark = [pytest.mark.needs_namespaces, pytest.mark.slow]


@pytest.fixture(scope="module")
def yard(tmp_path_factory):
    with contextlib.ExitStack() as stack:
        fleet = stack.enter_context(Fleet(1, disk_mb=400, cgroups=True))
        [host] = fleet
        host.docker = stack.enter_context(contextlib.closing(DockerWithoutRoot(host)))
        host.docker.load(root_archive(tmp_path_factory.mktemp("image")), IMAGE, "ENV WHICH=image")
        product = stack.enter_context(contextlib.closing(Product()))
        yield product.start().with_admin().with_hosts(fleet)


@pytest.fixture
def docker(yard):
    """Nothing of it is left after a test."""
    docker = yard.fleet[0].docker
    yield docker
    wait_for(
        lambda: not docker.containers(),
        "no container to be left",
        60,
        dump=lambda: str(docker("ps", "--all")),
    )
    yard.check()


def pool(program, replicas=1, image=IMAGE):
    container = {"imageUri": image, "command": ["sh", "-c", program]}
    return {
        "machineSpec": {"machineType": "host"},
        "replicaCount": str(replicas),
        "containerSpec": container,
        "trainyard": {"runtime": "docker"},
    }


def submit(yard, *pools, name, **more):
    return yard.submit({"displayName": name, "jobSpec": {"workerPoolSpecs": list(pools), **more}})


def test_the_check_says_that_it_is_docker_without_root(yard, client, docker):
    [row] = yard.query("SELECT checklist FROM agents_host")
    [text] = [line["text"] for line in row["checklist"] if line["name"] == "Runtimes"]
    assert "docker runs without root" in text


def test_a_program_is_root_in_its_container_and_the_login_on_the_host(yard, client, docker):
    job = submit(
        yard, pool('id -u; echo "$WHICH"; echo kept > "$TRAINYARD_WORK/mine"; sleep 600'), name="who"
    )
    assert client.wait_for_log(job, "image", timeout=120) == b"0\nimage\n"
    [run] = yard.runs(job)
    [work] = yard.fleet[0].path(yard.fleet[0].home).glob(".trainyard/*/work/*/mine")
    assert work.stat().st_uid == UID
    client.cancel(job)
    client.wait(job, "CANCELLED")
    assert run["why"] == ""


def test_an_image_of_the_storage_is_shipped_and_loaded(yard, client, docker):
    host = yard.fleet[0]
    docker("save", "--output", f"{host.home}/saved.tar", IMAGE)
    data = host.path(f"{host.home}/saved.tar").read_bytes()
    job = submit(yard, pool('echo "$WHICH"', image=Storage(client).put("small.tar", data)), name="stored")
    client.wait(job, "SUCCEEDED", timeout=200)
    assert client.log(job) == b"image\n"


@pytest.mark.parametrize(("program", "code"), [("exit 7", 7), ("kill -9 $$", 137)])
def test_its_status_is_told(yard, client, docker, program, code):
    job = submit(yard, pool(f"echo here; {program}"), name=f"ends with {code}")
    client.wait(job, "FAILED", timeout=120)
    assert client.log(job) == b"here\n"
    assert [run["exit_code"] for run in yard.runs(job)][-1] == code


def test_one_that_ignores_the_stop_is_killed(yard, client, docker):
    job = submit(yard, pool("trap '' TERM; echo deaf; while true; do sleep 0.1; done"), name="deaf")
    client.wait_for_log(job, "deaf", timeout=120)
    client.cancel(job)
    client.wait(job, "CANCELLED", timeout=60)


def test_the_runner_and_the_follower_are_killed_and_the_program_goes_on(yard, client, docker):
    host = yard.fleet[0]
    job = submit(
        yard, pool('n=0; while [ $n -lt 60 ]; do echo "line $n"; n=$((n+1)); sleep 0.1; done'), name="kills"
    )
    client.wait_for_log(job, "line 5\n", timeout=120)
    for mark in (" serve$", "trainyard-follower"):
        host.run_inside("pkill", f"-{signal.SIGKILL.value}", "-f", mark)
    client.wait(job, "SUCCEEDED", timeout=120)
    assert client.log(job) == b"".join(b"line %d\n" % number for number in range(60))
    assert len(yard.runs(job)) == 1


def test_a_shell_is_in_the_container(yard, client, docker):
    job = submit(yard, pool("echo up; sleep 600"), name="shell", enableWebAccess=True)
    client.wait_for_log(job, "up", timeout=120)
    shell = HeldShell(client, yard.runs(job)[0]["id"]).connect()
    shell.type(b"echo $WHICH-$(id -u)\n").seen(b"image-0")
    shell.drop()
    client.cancel(job)
    client.wait(job, "CANCELLED")


def test_replicas_that_have_to_reach_each_other_are_refused_in_words(yard, client, docker):
    job = submit(yard, pool("true"), pool("true"), name="two")
    client.wait(job, "FAILED", timeout=120)
    said = {run["message"] for run in yard.runs(job) if run["refusal"] == "runtime"}
    assert any(text.startswith("Docker without root gives containers another network") for text in said), said
