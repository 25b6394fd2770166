"""Jobs in containers of Apptainer on real hosts, without root, from a registry that asks for a password."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from pathlib import Path

import pytest

from agents.runner.processes import all_processes
from tests.flows.test_brought import Storage
from tests.flows.test_containers import Registry, pool, submit
from tests.harness.containers import give_apptainer, make_sif
from tests.harness.hosts import Fleet
from tests.harness.hosts.disk import UID
from tests.harness.product import Product
from tests.harness.wait_and_processes import wait_for
from tests.unit.agents.runner.test_pulls import PASSWORD

pytestmark = pytest.mark.needs_namespaces


# The programs of other engines, which test hosts have from this machine.
HIDE = "for each in podman docker; do [ ! -e /usr/bin/$each ] || mount --bind /dev/null /usr/bin/$each; done"


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    registry = Registry(tmp_path_factory.mktemp("registry"))
    yield registry
    registry.close()


@pytest.fixture(scope="module")
def yard(registry):
    fleet = Fleet(2, disk_mb=400, cgroups=True).boot()
    product = Product()
    try:
        for host in fleet:
            give_apptainer(host)
            host.run_inside("sh", "-c", HIDE)
        product.start().with_admin().with_hosts(fleet)
        url = f"{product.url}/api/v1/projects/default/imageRegistries/{registry.address}"
        product.client.call("PUT", url, json={"username": "ada", "password": PASSWORD})
        yield product
    finally:
        product.close()
        fleet.close()


def named(*words, **more):
    return pool(*words, trainyard={"runtime": "apptainer"}, **more)


def engines():
    """The processes of the engine, each of which is the parent of a program."""
    found = []
    for pid in all_processes():
        with contextlib.suppress(OSError):  # it has just ended
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"Apptainer runtime parent"):
                found.append(pid)
    return found


def none_is_left(yard):
    wait_for(lambda: not engines(), "no container to be left", 120)
    for host in yard.fleet:
        tmp = host.run_inside("sh", "-c", "ls -d /tmp/rootfs-* /tmp/trainyard-* 2>/dev/null || true").stdout
        assert not tmp.split(), tmp


def test_replicas_on_two_hosts_run_an_image_of_a_private_registry(yard, registry, client):
    image = registry.push("small:1", "ENV WHICH=image", "WORKDIR /etc", "USER ada")
    program = 'echo "$WHICH of $RANK in $(pwd) as $(id -u)"; echo it > "$AIP_MODEL_DIR/rank-$RANK"; sleep 600'
    job = submit(
        yard, named(image, program), named(image, program), name="apptainer",
        baseOutputDirectory={"outputUriPrefix": "gs://lab/apptainer"},
    )  # fmt: skip
    uid = yard.fleet[0].run_inside("id", "-u", yard.fleet[0].user).stdout.strip()
    for number in range(2):
        line = client.wait_for_log(job, "\n", f"workerpool{number}-0", timeout=300)
        assert line.decode() == f"image of {number} in /etc as {uid}\n"
    assert len(engines()) == 2
    client.cancel(job)
    client.wait(job, "CANCELLED")
    none_is_left(yard)
    yard.check()


@pytest.mark.slow
def test_a_program_ends_with_its_status_and_its_image_is_not_pulled_again(yard, registry, client):
    image = registry.push("train:1", 'ENTRYPOINT ["sh", "-c", "echo epochs $0; exit 0"]', 'CMD ["3"]')
    first = submit(yard, named(image), name="once")
    client.wait(first, "SUCCEEDED", timeout=300)
    assert client.log(first, "workerpool0-0") == b"epochs 3\n"
    failed = submit(yard, named(image, "exit 7"), name="seven")
    client.wait(failed, "FAILED", timeout=300)
    assert yard.runs(failed)[-1]["exit_code"] == 7
    none_is_left(yard)
    yard.check()


@pytest.mark.slow
def test_where_only_apptainer_works_a_job_need_not_name_it(yard, registry, client):
    image = registry.push("small:1", "ENV WHICH=image")
    job = submit(yard, pool(image, 'echo "$WHICH"'), name="unnamed")
    client.wait(job, "SUCCEEDED", timeout=200)
    assert client.log(job, "workerpool0-0") == b"image\n"
    assert client.call("GET", f"{client.url}/api/v1/jobs/{job}").json()["engineUsed"] == "apptainer"
    [run] = yard.query(f'SELECT "order" FROM jobs_run WHERE job_id = {job}')
    assert '"apptainer"' in str(run["order"]).replace("'", '"')
    none_is_left(yard)
    yard.check()


@pytest.mark.slow
def test_an_image_that_the_registry_does_not_have_fails_in_the_engines_words(yard, registry, client):
    job = submit(yard, named(f"{registry.address}/lab/none:1", "true"), name="none")
    client.wait(job, "FAILED", timeout=200)
    assert "manifest unknown" in client.call("GET", f"{client.url}/api/v1/jobs/{job}/events").text
    none_is_left(yard)
    yard.check()


@pytest.mark.slow
def test_a_host_reboots_under_a_container(yard, registry, client):
    image = registry.push("small:1", "ENV WHICH=image")
    job = submit(yard, named(image, 'echo "run $TRAINYARD_RUN"; sleep 600'), name="reboot")
    client.wait_for_log(job, "run ", timeout=300)
    (first,) = yard.runs(job)
    (row,) = yard.query(f"SELECT name FROM agents_host WHERE id = {first['host_id']}")
    host = next(each for each in yard.fleet if each.name == row["name"])
    host.reboot()
    wait_for(lambda: len(yard.runs(job)) == 2, "a new run", 300, dump=yard.tail)
    old, new = yard.runs(job)
    assert (old["id"], old["why"], old["exit_code"]) == (first["id"], "reboot", None)
    wait_for(lambda: f"run {new['id']}".encode() in client.log(job), "its output", 300, dump=yard.tail)
    assert len(engines()) == 1
    client.cancel(job)
    client.wait(job, "CANCELLED")
    none_is_left(yard)
    yard.check("after a reboot under a container of Apptainer")


@pytest.fixture
def sif(yard, tmp_path):
    """A SIF file on the storage that the hosts share, for the login alone."""
    made = make_sif(
        tmp_path,
        "%environment",
        "  export FOO=image BAR=image",
        "%runscript",
        '  echo "ran $FOO $BAR $*"; $THEN',
    )
    place = yard.fleet.shared_dir / "images"
    place.mkdir(exist_ok=True)
    shutil.copy(made, place / "small.sif")
    (place / "small.sif").chmod(0o600)
    os.chown(place / "small.sif", UID, UID)
    yield "/mnt/shared/images/small.sif"
    shutil.rmtree(place)


def test_a_sif_file_of_shared_storage_runs_on_two_hosts_as_it_is(yard, client, sif):
    document = pool(sif)
    document["containerSpec"].update(args=["--epochs", "3"], env=[{"name": "BAR", "value": "job"}])
    # Whatever else runs is stopped when the primary has succeeded.
    document["containerSpec"]["env"].append({"name": "THEN", "value": "sleep 600"})
    shell = pool(sif, 'echo "$FOO in $(pwd)"; echo kept > "$TRAINYARD_WORK/x" && cat "$TRAINYARD_WORK/x"')
    job = submit(yard, document, shell, name="sif")
    client.wait_for_log(job, "kept\n", "workerpool1-0", timeout=200)
    client.wait_for_log(job, "\n", "workerpool0-0", timeout=200)
    client.cancel(job)
    client.wait(job, "CANCELLED")
    assert client.log(job, "workerpool0-0") == b"ran image job --epochs 3\n"
    assert client.log(job, "workerpool1-0") == b"image in /\nkept\n"
    none_is_left(yard)
    yard.check()


@pytest.mark.slow
def test_a_sif_file_that_the_login_may_not_read_or_that_was_changed_is_not_run_from_the_cache(
    yard, client, sif, tmp_path
):
    """The rights of the login count, whichever project the job is of: also where the image was unpacked before."""
    path = yard.fleet.shared_dir / "images" / "small.sif"
    client.wait(submit(yard, pool(sif), name="before"), "SUCCEEDED", timeout=200)
    os.chown(path, 0, 0)
    refused = submit(yard, pool(sif), name="closed")
    client.wait(refused, "FAILED", timeout=200)
    events = client.call("GET", f"{client.url}/api/v1/jobs/{refused}/events").text
    assert f"{sif} cannot be read by the login of this host: Permission denied" in events
    shutil.copy(make_sif(tmp_path, "%runscript", "  echo other"), path)
    os.chown(path, UID, UID)
    other = submit(yard, pool(sif), name="changed")
    client.wait(other, "SUCCEEDED", timeout=200)
    assert client.log(other, "workerpool0-0") == b"other\n"
    path.write_bytes(b"#!/bin/sh\n")
    damaged = submit(yard, pool(sif), name="damaged")
    client.wait(damaged, "FAILED", timeout=200)
    assert "is no SIF file" in client.call("GET", f"{client.url}/api/v1/jobs/{damaged}/events").text
    none_is_left(yard)
    yard.check()


def test_an_archive_and_a_sif_file_of_the_storage_are_shipped_to_two_hosts_and_run(
    yard, registry, client, tmp_path
):
    storage = Storage(client)
    archive = storage.put("small.tar", registry.saved("kept:1", "ENV WHICH=archive"))
    made = make_sif(tmp_path, "%environment", "  export WHICH=sif", "%runscript", '  echo "ran $WHICH $*"')
    sif = storage.put("small.sif", made.read_bytes())
    for name, uri, expected in (("archive", archive, "archive"), ("sif", sif, "sif")):
        program = 'echo "$WHICH of $RANK"; sleep 600'
        job = submit(yard, pool(uri, program), pool(uri, program), name=name)
        for number in range(2):
            line = client.wait_for_log(job, "\n", f"workerpool{number}-0", timeout=300)
            assert line == f"{expected} of {number}\n".encode()
        client.cancel(job)
        client.wait(job, "CANCELLED")
    document = pool(sif)
    document["containerSpec"]["args"] = ["--epochs", "3"]
    job = submit(yard, document, name="runscript")
    client.wait(job, "SUCCEEDED", timeout=200)
    assert client.log(job) == b"ran sif --epochs 3\n"
    shown = client.call("GET", f"{client.url}/api/v1/jobs/{job}").json()
    assert shown["brought"]["workerpool0"]["image"] == hashlib.sha256(made.read_bytes()).hexdigest()
    none_is_left(yard)
    yard.check()
