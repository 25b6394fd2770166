"""Hosts with a second network for data, whose own names are 127.0.1.1 there, as Debian and Ubuntu have it."""

from __future__ import annotations

import json

import pytest

from tests.harness.hosts import Fleet
from tests.harness.product import Product, job_spec

pytestmark = [pytest.mark.slow, pytest.mark.needs_namespaces, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def yard():
    with Fleet(2, networks=2) as fleet, Product() as product:
        yield product.with_admin().with_hosts(fleet)


def environment_of(yard, job, replica):
    for line in yard.client.log(job, replica).decode().splitlines():
        if line.startswith("environment "):
            return json.loads(line.removeprefix("environment "))
    raise AssertionError(f"{replica} printed no environment")


def replicas_see(yard, address_of, interface):
    """Run a job over both hosts; each replica must have found all others."""
    pool = {"command": ["cluster-member"], "gpus": 5}
    job = yard.submit(job_spec(pool, pool, name="members"))
    yard.client.wait(job, "SUCCEEDED")
    seen = [environment_of(yard, job, name) for name in ("workerpool0-0", "workerpool1-0")]
    hosts = {host.name: host for host in yard.fleet}
    for each in seen:
        assert each["GLOO_SOCKET_IFNAME"] == each["NCCL_SOCKET_IFNAME"] == interface
        assert each["PET_LOCAL_ADDR"] == address_of(hosts[each["HOSTNAME"]])
        assert each["MASTER_ADDR"] == seen[0]["PET_LOCAL_ADDR"]
    cluster = json.loads(seen[1]["CLUSTER_SPEC"])["cluster"]
    addresses = [cluster[pool][0].rpartition(":")[0] for pool in ("workerpool0", "workerpool1")]
    assert addresses == [each["PET_LOCAL_ADDR"] for each in seen]


def test_the_check_finds_the_address_and_says_that_the_name_is_127_0_1_1(yard):
    rows = yard.query("SELECT name, found_address, data_address, checklist FROM agents_host ORDER BY name")
    for host, row in zip(yard.fleet, rows, strict=True):
        assert (row["name"], row["found_address"], row["data_address"]) == (host.name, host.address, "")
        [line] = [each for each in row["checklist"] if each["name"] == "Network"]
        assert f"reached at {host.address} (eth0)" in line["text"]
        assert f"{host.name}, resolves to 127.0.1.1" in line["text"]
        assert line["ok"] is None and f"{host.name} the address {host.address} in /etc/hosts" in line["fix"]
    replicas_see(yard, lambda host: host.address, "eth0")


def test_replicas_use_the_network_that_an_admin_chose(yard):
    refused = yard.command("host", "network", yard.fleet[0].name, "--data-address", "10.9.9.9", check=False)
    assert refused.returncode == 1 and yard.fleet[0].second_address in refused.stderr
    for host in yard.fleet:
        yard.command("host", "network", host.name, "--data-address", host.second_address)
    replicas_see(yard, lambda host: host.second_address, "eth1")
    for host in yard.fleet:
        yard.command("host", "network", host.name, "--data-address", "found")
    replicas_see(yard, lambda host: host.address, "eth0")
    yard.check("over two networks")
