"""A real host whose python3 is of another version than this machine's. Only `make runner-pythons` runs this."""

from __future__ import annotations

import os
import pathlib
import subprocess

import pytest

from tests.harness.hosts import Fleet
from tests.harness.product import Product, job_spec

PYTHON = os.environ.get("RUNNER_PYTHON", "")
HOME = "/opt/python"
WRAPPER = f"""\
#!/bin/sh
LD_LIBRARY_PATH={HOME}/lib exec {HOME}/bin/python3 "$@"
"""

pytestmark = [pytest.mark.slow, pytest.mark.needs_namespaces, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def version():
    return subprocess.check_output(
        [PYTHON, "-c", "import platform; print(platform.python_version())"], text=True
    ).strip()


@pytest.fixture(scope="module")
def yard():
    """A product with two hosts on which `python3` is that version."""
    prefix = pathlib.Path(PYTHON).resolve().parents[1]
    with Fleet(2, binds={HOME: prefix}) as fleet, Product() as product:
        for host in fleet:
            host.write("/usr/local/bin/python3", WRAPPER)
        yield product.with_admin().with_hosts(fleet)


def test_the_hosts_run_the_chosen_python(yard, version):
    assert {host.ssh("python3 --version").stdout for host in yard.fleet} == {f"Python {version}\n"}
    checked = yard.query("SELECT checklist FROM agents_host")
    assert len(checked) == 2 and all(version in str(row["checklist"]) for row in checked), checked


def test_jobs_run_from_start_to_end_under_that_python(yard):
    """A gang that ends by itself, a job that crashes and is started again, a job that is cancelled, and a shell."""
    pool = {"command": ["replica", "--seconds", "1", "--mb", "0.3"], "gpus": 5}
    gang = yard.submit(job_spec(pool, pool, name="gang"))
    again = "test -e ../seen || { touch ../seen; kill -9 $$; }; echo back"
    crashing = yard.submit(job_spec(["sh", "-c", again], name="crashing"))
    stubborn = ["replica", "--ignore-term", "--seconds", "900"]
    cancelled = yard.submit(job_spec(stubborn, name="cancelled", web_access=True))
    yard.client.wait(gang, "SUCCEEDED")
    yard.client.wait(crashing, "SUCCEEDED")
    assert len(yard.runs(crashing)) == 2 and yard.client.log(crashing) == b"back\n"
    yard.client.wait(cancelled, "RUNNING")
    [run] = yard.runs(cancelled)
    with yard.client.shell(run["id"]) as shell:
        shell.wait_until_open().say("echo $TRAINYARD_RUN", run["id"])
    yard.client.cancel(cancelled)
    yard.client.wait(cancelled, "CANCELLED")
    yard.check("on another Python")


def test_runs_are_adopted_after_the_runner_died(yard):
    job = yard.submit(job_spec(["replica", "--seconds", "8", "--exit", "0"], name="adopted"))
    yard.client.wait(job, "RUNNING")
    for host in yard.fleet:
        serving = [str(pid) for pid, command in host.processes(" serve") if command.endswith(" serve")]
        host.run_inside("kill", "-9", *serving, check=False)
    yard.client.wait(job, "SUCCEEDED")
    assert len(yard.runs(job)) == 1
    yard.check("after the runner's death")
