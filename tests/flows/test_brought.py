"""What jobs bring, on real hosts: archives, repositories and Python packages, shipped while processes are killed."""

from __future__ import annotations

import gzip
import hashlib
import random
import re

import pytest

from tests.harness.product import job_spec
from tests.harness.product.client import Refused
from tests.harness.wait_and_processes import wait_for
from tests.unit.agents.runner.hostile_archives import REFUSED, tar
from tests.unit.agents.runner.test_environments import source_archive, wheel

# Prints what it is among its peers, as code for Vertex reads it.
TASK = """import helper, json, os, sys
cluster = json.loads(os.environ["CLUSTER_SPEC"])
workers = len(cluster["cluster"]["workerpool1"])
print("helper", helper.ANSWER, cluster["task"]["type"], workers, sys.argv[1:], flush=True)
"""
# A job succeeds when its primary ends, so this one waits until the others have printed.
UNTIL_TOLD = """
import json, os, time
primary = json.loads(os.environ["CLUSTER_SPEC"])["task"]["type"] == "workerpool0"
while primary and not os.path.exists(os.path.expanduser("~/{}")):
    time.sleep(0.05)
"""


class Storage:
    """Stores artifacts and objects as a script does."""

    def __init__(self, client):
        self.client = client

    def artifact(self, data, name="code.tar.gz"):
        url = f"{self.client.url}/api/v1/projects/default/artifacts"
        self.client.call("POST", url, params={"kind": "archive", "name": name}, data=data)
        return hashlib.sha256(data).hexdigest()

    def put(self, name, data, bucket="brought"):
        buckets = f"{self.client.url}/api/v1/projects/default/buckets"
        try:
            self.client.call("POST", buckets, json={"name": bucket})
        except Refused as refused:
            assert refused.status == 409
        url = f"{self.client.url}/upload/storage/v1/b/{bucket}/o"
        self.client.call("POST", url, params={"uploadType": "media", "name": name}, data=data)
        return f"gs://{bucket}/{name}"


@pytest.fixture
def storage(client):
    return Storage(client)


def with_code(pool, **code):
    """The document of a pool, with code."""
    document = job_spec(pool)["jobSpec"]["workerPoolSpecs"][0]
    return {**document, "trainyard": {"code": code}}


def submit(yard, *pools, name):
    return yard.submit({"displayName": name, "jobSpec": {"workerPoolSpecs": list(pools)}})


def archive(text, size=0):
    noise = random.Random(size).randbytes(size)  # noqa: S311
    return gzip.compress(tar(("train.py", {"data": text.encode()}), ("data/noise", {"data": noise})), 1)


SHOW = ["python3", "train.py"]


def tell(yard, marker):
    """Let the primaries end that wait for this."""
    for host in yard.fleet:
        host.write(f"{host.home}/{marker}", "")


def test_a_gang_runs_with_an_archive_and_the_next_job_needs_no_shipping(yard, client, storage):
    text = "import os; print(sorted(os.listdir()), os.path.getsize('data/noise'), flush=True)\n"
    sha = storage.artifact(archive(text + UNTIL_TOLD.format("archive-done"), 3 << 20))
    pools = [with_code({"command": SHOW, "gpus": 5}, artifact=sha) for _ in range(2)]
    job = submit(yard, *pools, name="archive")
    for replica in ("workerpool0-0", "workerpool1-0"):
        assert client.wait_for_log(job, "\n", replica) == b"['data', 'train.py'] 3145728\n"
    tell(yard, "archive-done")
    client.wait(job, "SUCCEEDED")
    again = submit(yard, *pools, name="archive again")
    client.wait(again, "SUCCEEDED")
    rows = yard.query(f"SELECT asked, phase FROM jobs_preparation WHERE what LIKE '%{sha}%'")
    assert len(rows) >= 2 and all(row["asked"] == 1 for row in rows), "nothing was shipped twice"
    yard.check()


@pytest.mark.slow
def test_a_gang_runs_a_python_package_on_two_hosts(yard, client, storage):
    uris = [
        storage.put(
            "aiplatform-2026-11-23-16:47:45.123-trainer-0.1.tar.gz",
            source_archive(TASK + UNTIL_TOLD.format("package-done")),
        ),
        storage.put("helper-1.2-py3-none-any.whl", wheel("helper", "1.2", "ANSWER = 42")),
    ]
    document = job_spec({"command": ["x"], "gpus": 5})["jobSpec"]["workerPoolSpecs"][0]
    del document["containerSpec"]
    module = "aiplatform_custom_trainer_script.task"
    spec = {
        "executorImageUri": "host",
        "packageUris": uris,
        "pythonModule": module,
        "args": ["--epochs", "3"],
    }
    pool = {**document, "pythonPackageSpec": spec}
    job = submit(yard, pool, pool, name="package")
    for number in range(2):
        words = f"helper 42 workerpool{number} 1 ['--epochs', '3']\n"
        log = client.wait_for_log(job, words, f"workerpool{number}-0", timeout=400).decode()
        assert log.startswith(("Looking in ", "Processing ")) and log.endswith(words)
        assert re.search(r"\nSuccessfully installed aiplatform\S+-0\.1 helper-1\.2\nhelper 42", log)
    tell(yard, "package-done")
    client.wait(job, "SUCCEEDED")
    later = submit(yard, pool, pool, name="package again")
    client.wait(later, "SUCCEEDED")
    for number in range(2):
        line, rest = client.log(later, f"workerpool{number}-0").decode().split("\n", 1)
        assert line.startswith("trainyard: the packages were installed") and "helper==1.2" in line
        assert rest == f"helper 42 workerpool{number} 1 ['--epochs', '3']\n"
    [row] = yard.query("SELECT result FROM jobs_preparation WHERE kind = 'environment' LIMIT 1")
    assert "helper==1.2" in str(row["result"])
    yard.check()


@pytest.mark.slow
def test_pip_that_fails_is_told_with_its_last_lines(yard, client, storage):
    uri = storage.put("broken-0.1.tar.gz", source_archive("", "no-such-package>=7"))
    document = job_spec({"command": ["x"]})["jobSpec"]["workerPoolSpecs"][0]
    del document["containerSpec"]
    spec = {"executorImageUri": "host", "packageUris": [uri], "pythonModule": "x"}
    job = submit(yard, {**document, "pythonPackageSpec": spec}, name="broken package")
    client.wait(job, "FAILED", timeout=400)
    assert "the packages cannot be installed" in client.job(job)["error"]["message"]


@pytest.mark.slow
def test_a_hostile_archive_fails_the_job_and_says_why(yard, client, storage):
    sha = storage.artifact(REFUSED["links that lead out together"][0]())
    job = submit(yard, with_code({"command": ["true"]}, artifact=sha), name="hostile")
    client.wait(job, "FAILED")
    assert "leads out of it" in client.job(job)["error"]["message"]
    assert not yard.query(f"SELECT 1 FROM jobs_run WHERE job_id = {job} AND started_at IS NOT NULL")


OTHER_ROLES = [pytest.param(role, marks=pytest.mark.exhaustive) for role in ("worker", "web")]


@pytest.mark.parametrize("role", ["dispatcher", *OTHER_ROLES])
@pytest.mark.slow
def test_a_process_of_the_console_is_killed_while_it_ships(yard, client, storage, role):
    yard.settings["SHIP_MB_S"] = "4"
    yard.stop()
    yard.start()
    yard.wait_for_hosts("up")
    try:
        sha = storage.artifact(archive(f"print('shipped in spite of a killed {role}')", 12 << 20))
        job = submit(yard, with_code({"command": SHOW}, artifact=sha), name=f"killed {role}")
        part = f".trainyard/*/cache/blobs/{sha}.part"
        wait_for(lambda: size_on_a_host(yard, part) > 1 << 20, "some bytes to arrive")
        old = yard.processes.kill(role)
        yard.processes.wait_for_new(role, old)
        client.wait(job, "SUCCEEDED", timeout=240)
        assert client.log(job, patience=60).decode() == f"shipped in spite of a killed {role}\n"
    finally:
        del yard.settings["SHIP_MB_S"]
        yard.stop()
        yard.start()
        yard.wait_for_hosts("up")
        drop_large_files(yard)
    yard.check()


def drop_large_files(yard):
    """An archive is on a host three times: as it came, as a tree, and in the work directory of its job. The hosts are
    for other tests too, and their disks are small."""
    for host in yard.fleet:
        host.ssh("find ~/.trainyard -type f -size +8M \\( -path '*/cache/*' -o -path '*/work/*' \\) -delete")


def size_on_a_host(yard, pattern):
    sizes = [host.ssh(f"stat -c %s ~/{pattern} 2>/dev/null || echo 0").stdout for host in yard.fleet]
    return max(int(size.split()[0]) for size in sizes)


@pytest.mark.needs_namespaces
@pytest.mark.slow
def test_a_full_disk_of_a_host_is_told_and_the_job_runs_elsewhere_or_later(yard, client, storage):
    for host in yard.fleet:
        host.fill_disk(leave_kb=40_000)
    try:
        sha = storage.artifact(archive("print('there was room at last')", 60 << 20))
        job = submit(yard, with_code({"command": SHOW}, artifact=sha), name="full disk")
        words = "disk of this host is full"

        def told():
            rows = yard.query(f"SELECT cause FROM jobs_transition WHERE job_id = {job}")
            return any(words in str(row["cause"]) for row in rows)

        wait_for(told, "the history to say that the disk is full", 120)
    finally:
        for host in yard.fleet:
            host.free_disk()
    client.wait(job, "SUCCEEDED", "FAILED", timeout=240)
    drop_large_files(yard)
    yard.check()


@pytest.mark.needs_namespaces
def test_a_revision_of_a_repository_is_checked_out_by_the_hosts(yard, client, storage):
    """From the sshd of another host, with a key that is a stored secret; the commit is in the job's record."""
    *workers, server = yard.fleet
    script = (
        "rm -rf ~/work ~/train.git && git init -q -b main ~/work && cd ~/work && echo \"print('from git')\" > train.py"
        " && git add -A && git -c user.name=a -c user.email=a@b commit -q -m first && git clone -q --bare . ~/train.git"
        " && git rev-parse HEAD"
    )
    commit = server.ssh(script).stdout.split()[-1]
    known = f"{server.address} {server.host_key_line}\n"
    for host in workers:
        host.write(f"{host.home}/.ssh/known_hosts", known)
    with open(yard.fleet.key) as file:
        url = f"{client.url}/api/v1/projects/default/secrets/deploy-key"
        client.call("PUT", url, json={"value": file.read()})
    git = {"url": f"ssh://{server.user}@{server.address}{server.home}/train.git", "revision": "main"}
    pool = with_code({"command": SHOW, "gpus": 5}, git={**git, "credentialSecret": "deploy-key"})
    job = submit(yard, pool, name="git")
    client.wait(job, "SUCCEEDED")
    assert client.log(job) == b"from git\n"
    [row] = yard.query(f"SELECT resolved FROM jobs_job WHERE id = {job}")
    assert commit in str(row["resolved"])
    yard.check()
