"""What jobs write to cloud storage, on real hosts: stored, found again elsewhere, and never lost, whoever is killed."""

from __future__ import annotations

import hashlib
import json
import re

import pytest

from tests.behaviour.observed_job import ObservedJob, finish, host_of, kill_replica
from tests.harness.product import job_spec
from tests.harness.wait_and_processes import wait_for

P = "workerpool0-0"
# The hosts of the tests have disks of 256 MB, and a file needs room beside what other jobs have left there.
BIG_MB = 120
# Writes a large file, and prints its digest.
WRITER = """
import hashlib, os, sys
found = hashlib.sha256()
with open(os.path.join(sys.argv[1], "weights"), "wb") as file:
    for number in range(int(sys.argv[2])):
        block = os.urandom(1 << 20)
        found.update(block)
        file.write(block)
print("sha256", found.hexdigest(), flush=True)
"""


def outputs(yard, job_id):
    return yard.client.call("GET", f"{yard.url}/api/v1/jobs/{job_id}/outputs").json()


def content(yard, job_id, path, **headers):
    url = f"{yard.url}/api/v1/jobs/{job_id}/outputs/content?path={path}"
    return yard.client.call("GET", url, headers=headers)


def all_stored(yard, job_id, timeout=120):
    def done():
        found = outputs(yard, job_id)["hosts"]
        return found if found and all(each["state"] == "STORED" for each in found) else None

    return wait_for(done, "all outputs to be stored", dump=yard.tail, timeout=timeout)


def on_hosts(yard, job_id):
    """The output directories of the job that are left on hosts."""
    return [
        host.name
        for host in yard.fleet
        if host.ssh(f"ls -d ~/.trainyard/*/outputs/{job_id}", check=False).stdout.strip()
    ]


def begun(observed, run):
    return int(re.search(r"begins at step (\d+)", observed.wait_for_line("begins at", P, run["id"]))[1])


def saved(observed, run):
    return max(int(step) for step in re.findall(r"saved step (\d+)", observed.log(P, run["id"])))


@pytest.mark.needs_namespaces
def test_a_checkpoint_is_there_again_after_a_restart_and_on_another_host(yard):
    """S0-19, S0-20 without shared storage: the replica is killed, then its host is drained."""
    observed = ObservedJob(
        yard,
        {"command": ["checkpoint-trainer", "--until", "~/finish-outputs"], "gpus": 1},
        name="outputs",
        baseOutputDirectory={"outputUriPrefix": "gs://flow-bucket/kept"},
    ).running()
    observed.wait_for_line("saved step 10")
    kill_replica(yard, observed.run(), "checkpoint-trainer")
    wait_for(lambda: len(observed.runs()) > 1, "the restart", dump=yard.tail)
    observed.wait_for_line("saved step", run=observed.runs()[1]["id"])
    left = host_of(yard, observed.run())
    url = f"{yard.url}/api/v1/hosts/{left.name}"
    yard.client.call("POST", f"{url}:drain", json={})
    try:
        wait_for(lambda: len(observed.runs()) > 2, "the move", dump=yard.tail)
        observed.wait_for_line("saved step", run=observed.runs()[2]["id"])
    finally:
        yard.client.call("POST", f"{url}:uncordon", json={})
    finish(yard, "finish-outputs")
    observed.over("SUCCEEDED")
    first, second, third = observed.runs()
    assert first["host"] == second["host"] != third["host"]
    assert begun(observed, second) >= saved(observed, first) >= 10
    assert begun(observed, third) == saved(observed, second), (
        "it saved once more at SIGTERM, and that came along"
    )
    all_stored(yard, observed.id)
    step = content(yard, observed.id, f"flow-bucket/kept/checkpoints/{P}").content
    assert int(step) == saved(observed, third)
    wait_for(lambda: not on_hosts(yard, observed.id), "the hosts to have no copy", dump=yard.tail)


@pytest.mark.slow
def test_a_large_output_is_stored_whole_while_processes_are_killed(yard):
    """The worker, the dispatcher and the whole product are killed while it is uploaded."""
    job = write_large(yard, BIG_MB)

    def listed():
        found = outputs(yard, job)["hosts"]
        return found and found[0]["files"] > 0

    for role in ("worker", "dispatcher"):
        wait_for(listed, "the upload", dump=yard.tail)
        old = yard.processes.kill(role)
        yard.processes.wait_for_new(role, old)
    yard.client.wait(job, "SUCCEEDED")
    yard.kill()
    yard.start()
    is_whole_and_once(yard, job, BIG_MB)


def write_large(yard, size_mb):
    return yard.submit(
        job_spec(
            ["python3", "-c", WRITER, "gs://flow-bucket/big/model", str(size_mb)],
            name="big",
            baseOutputDirectory={"outputUriPrefix": "gs://flow-bucket/big"},
        )
    )


def is_whole_and_once(yard, job, size_mb):
    """Nothing is lost and nothing doubled, and the hosts have no copy."""
    all_stored(yard, job, timeout=120 + size_mb)
    digest = re.search(rb"sha256 ([0-9a-f]{64})", yard.client.log(job))[1].decode()
    answer = content(yard, job, "flow-bucket/big/model/weights")
    assert hashlib.sha256(answer.content).hexdigest() == digest and len(answer.content) == size_mb << 20
    rows = yard.query("SELECT name FROM jobs_storedobject WHERE name LIKE 'big/%'")
    assert [row["name"] for row in rows] == ["big/model/weights"]
    part = content(yard, job, "flow-bucket/big/model/weights", Range="bytes=100-109")
    assert part.status_code == 206 and part.content == answer.content[100:110]
    wait_for(lambda: not on_hosts(yard, job), "the hosts to have no copy", dump=yard.tail)
    yard.check()


def test_links_and_pipes_of_a_program_lead_nowhere(yard):
    """Another job's files on the same host, and the host's own, do not come along."""
    program = (
        "cd $0; ln -s /etc/passwd passwd; ln -s / root; ln -s ../../.. up; mkfifo pipe; echo fine > fine; "
        "printf x > 'two\nlines'; ls ../../../.. > listing"
    )
    job = yard.submit(
        job_spec(
            ["sh", "-c", program, "/gcs/flow-bucket/links/model"],
            name="links",
            baseOutputDirectory={"outputUriPrefix": "gs://flow-bucket/links"},
        )
    )
    yard.client.wait(job, "SUCCEEDED")

    def kept():
        found = outputs(yard, job)["hosts"]
        return found if found and found[0]["state"] == "KEPT" else None

    [host] = wait_for(kept, "the outputs to be stored", dump=yard.tail)
    assert host["leftOut"] == {"links": 3, "other": 1, "names": 1}
    listed = yard.client.call(
        "GET", f"{yard.url}/api/v1/jobs/{job}/outputs/files?path=flow-bucket/links/model"
    ).json()
    assert sorted(each["name"] for each in listed["files"]) == ["fine", "listing"]
    assert on_hosts(yard, job), "the file with the odd name is not thrown away"
    events = json.dumps(yard.client.call("GET", f"{yard.url}/api/v1/jobs/{job}/events").json())
    assert "stay on host" in events
