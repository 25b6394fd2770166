"""Failure mode 38 on real hosts: a foreign process uses a GPU. The job runs elsewhere, and the process is named."""

from __future__ import annotations

import pytest

from tests.harness.product import job_spec
from tests.harness.wait_and_processes import wait_for

pytestmark = pytest.mark.needs_namespaces


def test_a_gpu_in_foreign_use_is_quarantined_and_the_job_runs_elsewhere(yard, client):
    foreign_processes = {}
    try:
        for host in yard.fleet:
            pid = host.run_inside("sh", "-c", "sleep 3600 >/dev/null 2>&1 & echo $!").stdout.strip()
            foreign_processes[host] = pid
            host.gpus(apps=[{"gpu": 0, "pid": int(pid)}])
        job = yard.submit(job_spec({"command": ["true"], "gpus": 1}, name="not on his"))
        client.wait(job, "SUCCEEDED")
        refused, run = yard.runs(job)
        assert (refused["refusal"], refused["started_at"], run["exit_code"]) == ("gpu_busy", None, 0)
        [row] = yard.query(f"SELECT job_retries, internal_tries, attempt FROM jobs_job WHERE id = {job}")
        assert (row["job_retries"], row["internal_tries"], row["attempt"]) == (0, 0, 2)
        [gpu] = yard.query("SELECT uuid, state, state_text FROM agents_gpu WHERE state <> 'ok'")
        [his] = [pid for host, pid in foreign_processes.items() if host.gpu_uuids()[0] == gpu["uuid"]]
        assert gpu["state"] == "quarantined" and gpu["uuid"] in refused["message"]
        assert f"PID {his} (sleep)" in gpu["state_text"]
    finally:
        for host, pid in foreign_processes.items():
            host.run_inside("kill", pid)
            host.gpus(apps=[])
    free = "SELECT uuid FROM agents_gpu WHERE state <> 'ok'"
    wait_for(lambda: not yard.query(free), "the GPU to be found free", dump=yard.tail)
    yard.check()
