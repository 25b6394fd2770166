"""A client of the product as a script is one: REST with a bearer token, and WebSockets."""

from __future__ import annotations

import json
import time

import requests
from websockets.sync.client import connect

from tests.harness.product.viewers import LogReader, Shell
from tests.harness.wait_and_processes import PATIENCE_S, wait_for

TERMINAL = ("SUCCEEDED", "FAILED", "CANCELLED")


class Refused(Exception):
    """The product answered with an error. That alone is no failure of the test."""

    def __init__(self, answer):
        super().__init__(f"{answer.status_code}: {answer.text[:500]}")
        self.status = answer.status_code
        self.document = answer.json() if "json" in answer.headers.get("content-type", "") else {}


def job_spec(*pools, name="test", web_access=False, timeout_s=None, **changes):
    """Return a CustomJob. A pool is a command (list), a dict as `pool_spec` reads it, or empty."""
    job = {"workerPoolSpecs": [pool_spec(pool) for pool in pools]}
    if web_access:
        job["enableWebAccess"] = True
    if timeout_s:
        job["scheduling"] = {"timeout": f"{timeout_s}s"}
    return {"displayName": name, "jobSpec": {**job, **changes}}


def pool_spec(pool):
    if not pool:
        return {}
    wish = pool if isinstance(pool, dict) else {"command": pool}
    machine = {"machineType": wish.get("machine", "host")}
    if wish.get("gpus"):
        machine.update(acceleratorType="NVIDIA_H100_80GB", acceleratorCount=wish["gpus"])
    environment = [{"name": name, "value": value} for name, value in wish.get("env", {}).items()]
    container = {"imageUri": "host", "command": [str(word) for word in wish["command"]], "env": environment}
    pool = {"machineSpec": machine, "replicaCount": str(wish.get("replicas", 1)), "containerSpec": container}
    return {**pool, "diskSpec": wish["disk"]} if "disk" in wish else pool


class Client:
    def __init__(self, url, token, project="default", location="default"):
        self.url = url
        self.token = token
        self.jobs_url = f"{url}/v1/projects/{project}/locations/{location}/customJobs"
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.headers["Authorization"] = f"Bearer {token}"

    def call(self, method, url, patience=0.0, **options):
        """Send one request. With patience, repeat it while web is down or answers 503, as a real script does."""
        deadline = time.monotonic() + patience
        while True:
            try:
                answer = self.session.request(method, url, timeout=PATIENCE_S, **options)
                if answer.status_code != 503 or time.monotonic() > deadline:
                    break
            except (requests.ConnectionError, requests.Timeout):
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.1)
        if answer.status_code >= 400:
            raise Refused(answer)
        return answer

    # jobs

    def submit(self, document, key=None, patience=0.0):
        """Submit a job and return its id. With a key the request may be repeated without making a second job."""
        headers = {"Idempotency-Key": key} if key else {}
        answer = self.call("POST", self.jobs_url, patience, json=document, headers=headers)
        return int(answer.json()["name"].rsplit("/", 1)[1])

    def job(self, job_id, patience=0.0):
        return self.call("GET", f"{self.jobs_url}/{job_id}", patience).json()

    def state(self, job_id, patience=0.0):
        return self.job(job_id, patience)["state"].removeprefix("JOB_STATE_")

    def cancel(self, job_id, patience=0.0):
        self.call("POST", f"{self.jobs_url}/{job_id}:cancel", patience)

    def wait(self, job_id, *states, timeout=PATIENCE_S):
        """Wait until the job is in one of the states. If it ends in another one, fail at once, with its document."""
        wanted = states or TERMINAL

        def arrived():
            state = self.state(job_id, patience=timeout)
            if state in TERMINAL and state not in wanted:
                raise AssertionError(f"waited for {wanted}: {json.dumps(self.job(job_id), indent=1)[:3000]}")
            return state if state in wanted else None

        return wait_for(arrived, f"job {job_id} to be {' or '.join(wanted)}", timeout, every=0.05)

    # logs

    def log(self, job_id, replica="workerpool0-0", run=None, patience=0.0, **headers):
        """Return the stored bytes of a replica's log."""
        url = f"{self.url}/api/v1/jobs/{job_id}/replicas/{replica}/log"
        return self.call("GET", url, patience, params={"run": run} if run else {}, headers=headers).content

    def wait_for_log(self, job_id, text, replica="workerpool0-0", timeout=PATIENCE_S):
        def seen():
            stored = self.log(job_id, replica, patience=timeout)
            return stored if text.encode() in stored else None

        return wait_for(seen, f"{text!r} in the log of {replica}", timeout, every=0.05)

    # sockets

    def socket(self, path, **options):
        """Open a WebSocket to the product: `with client.socket("/ws/jobs/1") as socket: ...`."""
        address = self.url.replace("http", "ws", 1) + path
        headers = {"Authorization": f"Bearer {self.token}"}
        options = {
            "open_timeout": PATIENCE_S,
            "close_timeout": 2,
            "max_size": 2**24,
            "proxy": None,
            "legacy": True,  # readers keep their socket beyond one block
            **options,
        }
        return connect(address, additional_headers=headers, **options)

    def log_socket(self, job_id, replica="workerpool0-0", **where):
        return LogReader(self, job_id, replica, where or {"from": 0})

    def shell(self, run_id, cols=80, rows=24):
        return Shell(self.socket(f"/ws/shell/{run_id}"), cols, rows)
