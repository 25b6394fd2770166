"""What is refused, what is accepted with advice, and where people read how jobs behave."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys

import pytest

from tests.behaviour.observed_job import ObservedJob, finish
from tests.flows.test_end_to_end import NEW, Browser, json_form
from tests.harness.product import Refused, job_spec
from tests.harness.product.product import PASSWORD
from tests.harness.wait_and_processes import wait_for

QUICK = ["replica", "--seconds", "0.1"]
DEADLOCK = "finish-deadlock"
# Google's own client, in a process of its own: it is large.
BY_SDK = """
import json, sys
from google.cloud import aiplatform
from google.oauth2.credentials import Credentials
aiplatform.init(project="default", location="us-central1", staging_bucket="gs://staging", api_transport="rest",
    api_endpoint=sys.argv[1], credentials=Credentials(token=sys.argv[2]))
pools = [{"machine_spec": {"machine_type": pool["machineSpec"]["machineType"]}, "replica_count": 1,
    "container_spec": {"image_uri": "host", "command": pool["containerSpec"]["command"]}}
    for pool in json.load(sys.stdin)]
job = aiplatform.CustomJob(display_name="door", worker_pool_specs=pools)
job.submit()
print(job.resource_name.rsplit("/", 1)[1])
"""


@pytest.fixture(scope="module")
def browser(yard):
    browser = Browser(yard.url)
    browser.send("/login", "/login", username="ada", password=PASSWORD, next="")
    return browser


@pytest.fixture(scope="module")
def uneven(yard):
    """The example of the documents: a chief with one GPU, two workers with two each, which wait for each other."""
    command = ["replica", "--until", f"~/{DEADLOCK}"]
    observed = ObservedJob(
        yard,
        {"command": command, "gpus": 1},
        {"command": command, "gpus": 2, "replicas": 2},
        {},
        {"command": command, "replicas": 2},
        name="uneven",
        timeout_s=5 * 3600,
        baseOutputDirectory={"outputUriPrefix": f"{yard.fleet[0].home}/out-uneven"},
    ).running()
    yield observed
    finish(yard, DEADLOCK)
    observed.over("SUCCEEDED")


def advice(observed):
    return "\n".join(one["text"] for one in observed.ours["advice"])


@pytest.mark.parametrize(
    ("pools", "field"),
    [
        ([{"command": QUICK, "replicas": 2}], "worker_pool_specs[0].replica_count"),
        ([{}, {"command": QUICK}], "worker_pool_specs[0]"),
        ([], "worker_pool_specs"),
    ],
)
def test_S3_18_S4_06_S4_18_S4_19_the_first_pool_is_the_primarys_alone(client, pools, field):
    with pytest.raises(Refused) as refused:
        client.submit(job_spec(*pools, name="no primary"))
    error = refused.value.document["error"]
    assert (refused.value.status, error["status"]) == (400, "INVALID_ARGUMENT")
    assert [one["field"] for one in error["details"][0]["fieldViolations"]] == [f"job_spec.{field}"]


def test_S3_10_pools_with_different_numbers_of_gpus_are_accepted_and_run(uneven):
    assert uneven.state == "RUNNING"
    assert [len(run["gpus"]) for run in uneven.runs("workerpool1-1")] == [2]


def test_S3_09_S4_10_a_job_that_is_likely_to_hang_gets_advice_and_is_not_refused(uneven, browser):
    page = browser.get(f"/jobs/{uneven.id}/")
    for text in ("1 and 2 GPUs", "at most one evaluator"):
        assert text in advice(uneven) and text in page


def test_S0_20_a_long_job_is_advised_to_save_checkpoints(uneven, browser):
    assert "at least every 4 hours" in advice(uneven)
    assert "at least every 4 hours" in browser.get(f"/jobs/{uneven.id}/")


def test_S0_20_the_page_says_where_a_directory_on_a_hosts_disk_is_found_again(uneven, yard):
    hosts = ", ".join(sorted(host.name for host in yard.fleet))
    assert f"on each host's own disk ({hosts})" in advice(uneven)


def test_S0_40_S4_67_people_read_in_the_product_how_jobs_behave(browser):
    page = " ".join(re.sub(r"<[^>]+>", "", browser.get("/help/training")).split())
    for words in (
        "not one after the other",
        "at most 5 times",
        "at most 3 times",
        "3 times in all",
        "TF_CONFIG",
    ):
        assert words in page


class Quota:
    """One GPU for the project, and two jobs that want one each."""

    def __init__(self, yard):
        self.client = yard.client
        command = ["replica", "--until", "~/finish-quota"]
        self.limit(1)
        try:
            self.first = ObservedJob(yard, {"command": command, "gpus": 1}, name="within").running()
            self.second = ObservedJob(yard, {"command": QUICK, "gpus": 1}, name="beyond")
            self.reason = wait_for(lambda: "quota" in (why := self.second.ours["reason"]) and why, "a reason")
            self.state = self.second.state
            self.early = self.charged()
            self.later = wait_for(
                lambda: (now := self.charged()) > self.early + 1 and now, "its GPU seconds to grow"
            )
            self.state_while_charged = self.first.state
            finish(yard, "finish-quota")
            self.first.over("SUCCEEDED")
            self.second.over("SUCCEEDED")
            self.final = self.charged()
        finally:
            self.limit(None)

    def limit(self, value):
        address = f"{self.client.url}/api/v1/projects/default/quotas/NVIDIA_H100_80GB"
        self.client.call("PUT", address, json={"limit": value})

    def charged(self):
        """Return the GPU seconds of the first job until now."""
        address = f"{self.client.url}/api/v1/projects/default/usage?format=csv"
        lines = csv.DictReader(io.StringIO(self.client.call("GET", address).text))
        return sum(float(line["gpu_seconds"]) for line in lines if line["job"] == str(self.first.id))


@pytest.fixture(scope="module")
def quota(yard, uneven):
    finish(yard, DEADLOCK)
    uneven.over("SUCCEEDED")
    return Quota(yard)


def test_S0_04_S0_36_beyond_its_quota_a_job_waits_and_is_not_failed(quota):
    """There are free GPUs; the job waits for quota, and the reason says so."""
    assert quota.state == "QUEUED"
    assert "default uses 1 of 1 NVIDIA_H100_80GB" in quota.reason
    assert quota.second.states() == ["QUEUED", "PENDING", "RUNNING", "SUCCEEDED"]


def test_S3_36_a_job_that_does_nothing_is_charged_as_long_as_it_runs(quota, yard):
    """From its claim of the GPU to its release, not a second more; then the sum stays."""
    assert quota.state_while_charged == "RUNNING" and 0 < quota.early < quota.later < quota.final
    [run] = yard.query(f"SELECT created_at, released_at FROM jobs_run WHERE job_id = {quota.first.id}")
    assert quota.final == pytest.approx(run["released_at"] - run["created_at"], abs=0.01)
    assert quota.charged() == quota.final


def test_S4_03_a_machine_type_decides_what_each_replica_holds(yard, quota):
    """CPUs, memory and GPUs of each replica; and two that do not fit beside each other wait for each other."""
    [cpus] = [row["n"] for row in yard.query("SELECT MAX(cpus) AS n FROM agents_host")]
    whole = {"command": ["replica", "--until", "~/finish-machines"], "machine": f"custom-{int(cpus)}-1024"}
    small = {"command": ["replica", "--until", "~/finish-machines"], "machine": "custom-1-512", "gpus": 3}
    observed = ObservedJob(yard, small, {**whole, "replicas": len(yard.fleet.hosts) - 1}, name="machines")
    observed.running()
    rows = yard.query(
        f"SELECT id, host_id, cpus, memory_mb, gpu_uuids FROM jobs_run WHERE job_id = {observed.id}"
    )
    held = {row["id"].split("-", 1)[1][:11]: row for row in rows}
    assert (held["workerpool0"]["cpus"], len(held["workerpool0"]["gpu_uuids"])) == (1, 3)
    assert (held["workerpool1"]["cpus"], held["workerpool1"]["gpu_uuids"]) == (int(cpus), [])
    assert 0 < held["workerpool0"]["memory_mb"] <= 512 < held["workerpool1"]["memory_mb"] <= 1024
    assert len({row["host_id"] for row in rows}) == len(rows), "a whole host has no room for another replica"
    late = ObservedJob(yard, {**whole, "machine": f"custom-{int(cpus)}-512"}, name="too late")
    wait_for(lambda: "CPU" in late.ours["reason"], "the reason to name CPUs")
    assert late.state == "QUEUED"
    finish(yard, "finish-machines")
    for each in (observed, late):
        each.over("SUCCEEDED")


def test_S1_01_people_read_running_and_scripts_read_the_prefix(yard, client, browser):
    observed = ObservedJob(yard, ["replica", "--until", "~/finish-words"], name="words").running()
    assert observed.job["state"] == "JOB_STATE_RUNNING"
    shown = re.sub(r"<script.*?</script>|<[^>]+>", " ", browser.get(f"/jobs/{observed.id}/"), flags=re.S)
    assert "Running" in shown and "JOB_STATE" not in shown
    finish(yard, "finish-words")
    observed.over("SUCCEEDED")
    assert observed.job["state"] == "JOB_STATE_SUCCEEDED"


def test_S3_12_jobs_come_by_the_form_by_rest_and_by_googles_sdk(yard, client, browser):
    """The same job by each door, run on a real host; `gcloud` sends what the SDK sends."""
    spec = job_spec(["sh", "-c", "echo by this door"], name="door")
    fields = {**json_form(browser, json.dumps(spec)), "mode": "json", "action": "submit"}
    by_form = int(re.search(r"/jobs/(\d+)/", browser.send(NEW, NEW, **fields).url)[1])
    by_rest = client.submit(spec)
    done = subprocess.run(
        [sys.executable, "-c", BY_SDK, client.url, client.token],
        input=json.dumps(spec["jobSpec"]["workerPoolSpecs"]),
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "NO_PROXY": "*"},
    )
    assert done.returncode == 0, done.stderr
    by_sdk = int(done.stdout.split()[-1])
    yard.accepted += [by_form, by_rest, by_sdk]
    for job_id in (by_form, by_rest, by_sdk):
        client.wait(job_id, "SUCCEEDED")
        assert client.log(job_id) == b"by this door\n"


def test_S0_33_S0_34_nominal_and_allocatable_memory_of_machine_types(client, browser):
    types = client.call("GET", f"{client.url}/api/v1/machineTypes").json()["machineTypes"]
    [small] = [one for one in types if one["name"] == "n1-standard-4"]
    [large] = [one for one in types if one["name"] == "n1-standard-64"]
    shares = [one["allocatableMemoryMb"] / one["memoryMb"] for one in (small, large)]
    assert 0.5 < shares[0] < shares[1] < 1
    page = browser.get("/machines/")
    assert "n1-standard-4" in page and "Allocatable" in page
