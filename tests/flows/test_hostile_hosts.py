"""A job that replaces the runner of its login: its host is disconnected, and the jobs of others start as always."""

from __future__ import annotations

import statistics
import time

import pytest

from tests.harness.product import Client, job_spec
from tests.harness.product.product import where_is
from tests.harness.wait_and_processes import wait_for

# How much longer than usual a job of another tenant may take to its first line, beside the flood. The flood and the
# machine of the tests need time themselves.
SLOWER, SLOWER_S = 3.0, 3.0
FOUND_OUT_S = 60.0


@pytest.fixture(scope="module", params=["apart", pytest.param("embedded", marks=pytest.mark.exhaustive)])
def shape(request):
    return request.param


@pytest.fixture
def own_product(yard, shared_product):
    """The product of one test: what a hostile job leaves is nothing that other tests should judge."""
    yield yard
    shared_product.clear()


def first_line_s(client, yard):
    """The time from a submit to the first line of the job's log."""
    began = time.monotonic()
    job = client.submit(job_spec({"command": ["echo", "hello"], "gpus": 8}, name="honest"))
    client.wait_for_log(job, "hello")
    spent = time.monotonic() - began
    client.wait(job, "SUCCEEDED")
    return spent


@pytest.mark.parametrize("flood", ["greetings", pytest.param("samples", marks=pytest.mark.slow)])
def test_a_hostile_runner_delays_no_job_of_another_tenant(own_product, flood):
    yard = own_product
    yard.command("project", "add", "others")
    others = Client(yard.url, yard.client.token, project="others")
    usual = statistics.median(first_line_s(others, yard) for _ in range(5))
    job = yard.client.submit(
        job_spec({"command": ["hostile-runner", *flood.split()], "gpus": 8}, name="hostile")
    )
    yard.client.wait(job, "RUNNING")
    [run] = yard.runs(job)
    [row] = yard.query(f"SELECT name FROM agents_host WHERE id = {run['host_id']}")
    host = next(host for host in yard.fleet if host.name == row["name"])
    host.run_inside("touch", f"{host.home}/.flood-now")
    beside = [first_line_s(others, yard) for _ in range(5)]
    print(f"first line: {usual:.2f} s at median; beside the flood {', '.join(f'{s:.2f}' for s in beside)} s")
    assert max(beside) < SLOWER * usual + SLOWER_S
    yard.wait_for_hosts("misbehaving", host.name, timeout=FOUND_OUT_S)

    # An admin sees the reason, members of the project that the job does not answer, and nobody dials meanwhile.
    found = yard.client.call("GET", f"{yard.url}/api/v1/hosts").json()
    [seen] = [each for each in found["hosts"] if each["name"] == host.name]
    assert seen["status"] == "misbehaving" and "broke the protocol" in str(seen)
    flags = f"SELECT flags FROM jobs_job WHERE id = {job}"
    wait_for(lambda: "UNREACHABLE" in str(yard.query(flags)), "the job to be flagged", dump=yard.tail)
    health = yard.client.call("GET", f"{yard.url}/healthz").json()
    assert health["status"] == "ok" and health["stuck_s"] < 30
    logins = host.sshd_log().count("publickey")
    assert max(first_line_s(others, yard) for _ in range(3)) < SLOWER * usual + SLOWER_S
    assert host.sshd_log().count("publickey") == logins

    # The admin throws the program out and has the host checked again.
    yard.client.cancel(job)
    host.run_inside("sh", "-c", f"rm -rf {host.home}/.trainyard/bin {host.home}/.flood*")
    yard.command("host", "add", *where_is(host), "--accept-key", host.fingerprint())
    yard.wait_for_hosts("up", host.name)
    yard.client.wait(job, "CANCELLED")
