"""PID namespaces on a real host: found by its check, switched on, used by runs, and gone afterwards."""

from __future__ import annotations

import pytest

from tests.harness.hosts import Fleet
from tests.harness.product import Product, job_spec

pytestmark = [pytest.mark.slow, pytest.mark.needs_namespaces, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def yard():
    """Hosts without a boot id mounted over their /proc: such a /proc could not be mounted again."""
    with Fleet(1, own_boot_id=False) as fleet, Product() as product:
        yield product.with_admin().with_hosts(fleet)


def test_a_host_whose_runs_have_pid_namespaces(yard):
    [host] = yard.fleet
    [row] = yard.query("SELECT checklist FROM agents_host")
    [line] = [each["text"] for each in row["checklist"] if each["name"] == "Containment"]
    assert "PID namespaces can be switched on" in line
    yard.command("host", "contain", host.name, "--pid-namespaces", "on")
    script = "test $$ -lt 10 && exec replica --ignore-term --daemons 5 --seconds 900"
    job = yard.submit(job_spec(["sh", "-c", script], name="contained"))
    yard.client.wait(job, "RUNNING")
    yard.client.wait_for_log(job, "line 1")
    assert len(host.processes(f"daemon-of-{job}-")) == 5
    [run] = yard.query("SELECT containment FROM jobs_run")
    assert run["containment"] == "pid_namespace"
    yard.client.cancel(job)
    yard.client.wait(job, "CANCELLED")
    assert host.processes(f"{job}-") == []
    yard.check("in PID namespaces")
