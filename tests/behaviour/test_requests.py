"""What is refused, what is accepted with advice, and where people read how jobs behave."""

from __future__ import annotations

import re

import pytest

from tests.behaviour.observed_job import ObservedJob, finish
from tests.flows.test_end_to_end import Browser
from tests.harness.product import Refused, job_spec
from tests.harness.product.product import PASSWORD
from tests.harness.wait_and_processes import wait_for

QUICK = ["replica", "--seconds", "0.1"]
DEADLOCK = "finish-deadlock"


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
            self.usage = self.used()
            finish(yard, "finish-quota")
            self.first.over("SUCCEEDED")
            self.second.over("SUCCEEDED")
        finally:
            self.limit(None)

    def limit(self, value):
        address = f"{self.client.url}/api/v1/projects/default/quotas/NVIDIA_H100_80GB"
        self.client.call("PUT", address, json={"limit": value})

    def used(self):
        return self.client.call("GET", f"{self.client.url}/api/v1/projects/default/usage").text


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


def test_S3_36_a_hanging_job_is_charged_as_long_as_it_runs(quota):
    """Usage grows while the job does nothing, and is final when it is over."""
    assert "NVIDIA_H100_80GB" in quota.usage
    assert quota.used() != quota.usage


def test_S0_33_S0_34_S4_03_nominal_and_allocatable_memory_of_machine_types(client, browser):
    types = client.call("GET", f"{client.url}/api/v1/machineTypes").json()["machineTypes"]
    [small] = [one for one in types if one["name"] == "n1-standard-4"]
    [large] = [one for one in types if one["name"] == "n1-standard-64"]
    shares = [one["allocatableMemoryMb"] / one["memoryMb"] for one in (small, large)]
    assert 0.5 < shares[0] < shares[1] < 1
    page = browser.get("/machines/")
    assert "n1-standard-4" in page and "Allocatable" in page
