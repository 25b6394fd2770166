"""Google's SDK, the newest and 1.60, unpatched, against the product on real hosts.

tests/programs/google_sdk.py holds the steps. They run once for each version, in a process of their own. Those that
train in an image run on a host with podman, where one of Google's prebuilt images stands for one with Python and pip.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flows.test_brought import Storage
from tests.flows.test_containers import none_is_left, podman_of
from tests.harness.containers import give_podman
from tests.harness.framework_images import python_image
from tests.harness.hosts import Fleet
from tests.harness.leftovers import owned_environment
from tests.harness.product import Product
from tests.unit.agents.runner.test_environments import wheel

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tests" / "programs" / "google_sdk.py"
STEPS = re.findall(r"^@step\ndef (\w+)", PROGRAM.read_text(), re.MULTILINE)
IN_IMAGE = re.findall(r"^@step_in_image\ndef (\w+)", PROGRAM.read_text(), re.MULTILINE)
INTERPRETERS = {"newest": Path(sys.executable), "1.60": ROOT / "var" / "google-sdk-1.60" / "bin" / "python"}
IMAGE = "localhost/lab/python:1"


@pytest.fixture(params=["newest", pytest.param("1.60", marks=pytest.mark.slow)], scope="module")
def version(request):
    return request.param


@pytest.fixture(scope="module")
def outcomes(shared_product, version):
    """What each step said, by name."""
    return run_steps(shared_product.product_of("embedded"), version)


def run_steps(yard, version, *steps):
    variables = {"NO_PROXY": "*", "PYTHONWARNINGS": "ignore", "STORAGE_EMULATOR_HOST": yard.url}
    environment = owned_environment(variables)
    done = subprocess.run(
        [INTERPRETERS[version], PROGRAM, yard.url, yard.client.token, *steps],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=400,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"step"')]
    return {line["step"]: line for line in lines}, done.stdout


@pytest.mark.parametrize("step", STEPS)
def test_the_unpatched_sdk_does(outcomes, step):
    said(outcomes, step)


def said(outcomes, step):
    found, output = outcomes
    assert step in found, output[-4000:]
    assert found[step]["error"] is None, found[step]["error"]


@pytest.fixture(scope="module")
def yard_with_image(tmp_path_factory):
    place = tmp_path_factory.mktemp("python")
    archive = python_image(place, IMAGE)
    fleet = Fleet(1, disk_mb=1200, cgroups=True).boot()
    product = Product(PYTHON_INDEX="none")
    try:
        (host,) = fleet
        give_podman(host, "127.0.0.1:1")
        shutil.move(archive, host.path("/tmp/python.tar"))
        host.run_inside(*podman_of(host, "load", "--input", "/tmp/python.tar"))
        host.path("/tmp/python.tar").unlink()
        product.start().with_admin().with_hosts(fleet)
        product.command("location", "alias", "default", "us-docker.pkg.dev/vertex-ai/training/*", IMAGE)
        yield product
    finally:
        product.close()
        fleet.close()


@pytest.fixture(scope="module")
def outcomes_in_image(yard_with_image, version):
    return run_steps(yard_with_image, version, *IN_IMAGE)


@pytest.mark.needs_namespaces
@pytest.mark.parametrize("step", IN_IMAGE)
def test_the_unpatched_sdk_trains_in_a_prebuilt_image(outcomes_in_image, yard_with_image, step):
    said(outcomes_in_image, step)
    none_is_left(yard_with_image)


@pytest.mark.needs_namespaces
def test_each_job_of_a_prebuilt_image_ran_in_the_image_that_stands_for_it(outcomes_in_image, yard_with_image):
    jobs = [row["id"] for row in yard_with_image.query("SELECT id FROM jobs_job")]
    assert len(jobs) >= len(IN_IMAGE)
    for job in jobs:
        assert b"image: python\n" in yard_with_image.client.log(job), job


@pytest.mark.needs_namespaces
def test_an_image_stands_for_another_python_of_the_host(yard_with_image):
    """Its libraries are seen by a command and by packages."""
    yard, (host,) = yard_with_image, yard_with_image.fleet
    place = f"{host.home}/torch"
    host.run_inside("/usr/bin/python3", "-m", "venv", "--without-pip", place)
    (library,) = host.path(place).glob("lib/python3.*/site-packages")
    (library / "only_here.py").write_text("WORD = 'of the environment'\n")
    host.run_inside("chown", "-R", f"{host.user}:{host.user}", place)
    googles = "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-17.py310"
    yard.command("location", "alias", "default", googles, f"host:{place}/bin/python3")
    program = "import only_here, sys; print(only_here.WORD, sys.argv[1:])"
    uri = Storage(yard.client).put("trainer-1-py3-none-any.whl", wheel("trainer", "1", program))
    package = {"executorImageUri": googles, "packageUris": [uri], "pythonModule": "trainer", "args": ["--x"]}
    container = {"imageUri": googles, "command": ["python3", "-c", program, "--x"]}
    for task in ({"pythonPackageSpec": package}, {"containerSpec": container}):
        pool = {"machineSpec": {"machineType": "host"}, "replicaCount": "1", **task}
        job = yard.submit({"displayName": "another Python", "jobSpec": {"workerPoolSpecs": [pool]}})
        yard.client.wait(job, "SUCCEEDED", timeout=300)
        assert yard.client.log(job).endswith(b"of the environment ['--x']\n"), yard.client.log(job)
