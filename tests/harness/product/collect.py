"""Collect the evidence that the invariants are judged from: the ledger, rows, logs, and what is on the hosts."""

from __future__ import annotations

import json
import re
import subprocess
import time

from jobs.rules.lifecycle.states import TERMINAL
from tests.harness.evidence import HOST_STATE, Evidence
from tests.harness.invariants import HISTORY_KINDS
from tests.harness.product import observers
from tests.harness.wait_and_processes import command_of, environment_of

# A keeper reports the end of its run before its own, and the runner reads once more what the program has reported.
ENDS_S = 2.0
OF_THE_RUNNER = ("trainyard-keeper ", "trainyard-task metrics of ")
RUN_ID = re.compile(rb"\d{10,}-workerpool\d-\d+-a\d+-r\d+")
HOST_HISTORIES = f"""
SELECT h.name AS host, e.at, e.kind FROM agents_hostevent e JOIN agents_host h ON h.id = e.host_id
WHERE e.kind IN {HISTORY_KINDS} ORDER BY e.id
"""


def evidence(product, logs):
    evidence = Evidence(ledger=product.ledger(), accepted=list(product.accepted))
    living(product, evidence)
    evidence.hosts = {host.name: state_of(host) for host in product.fleet}
    evidence.transitions = product.query("SELECT * FROM jobs_transition ORDER BY id")
    evidence.gpu_claims = product.query(
        "SELECT g.uuid AS gpu, c.run_id, c.released_at FROM jobs_gpuclaim c JOIN agents_gpu g ON g.id = c.gpu_id"
    )
    evidence.usage = product.query("SELECT run_id, began_at, ended_at FROM jobs_usage")
    gaps = 'SELECT run_id, start, "end", reason FROM jobs_loggap'
    evidence.gaps = product.query(gaps)
    reports = "SELECT run_id, SUM(reports) AS reports FROM jobs_metricseries GROUP BY run_id"
    evidence.reported = {row["run_id"]: int(row["reports"]) for row in product.query(reports)}
    evidence.sightings = list(product.sightings)
    evidence.sizes, evidence.sessions = observers.sizes(product), product.sessions()
    evidence.denied, evidence.canaries = observers.denied(product), observers.canaries(product)
    if logs:
        evidence.logs, evidence.compared = product.logs.read()
        evidence.host_logs = different_logs(product, evidence.runs)
    return evidence


def different_logs(product, runs):
    """Read the logs on the hosts that are not those that are stored. A host keeps such a log."""
    hosts = {host.name: host for host in product.fleet}
    found = {}
    for run in runs:
        if run["log_digest_here"] and run["log_digest_host"] not in ("", run["log_digest_here"]):
            read = hosts[run["host"]].as_user("sh", "-c", f"cat ~/.trainyard/*/runs/{run['id']}/log")
            found[run["id"]] = subprocess.run(read, capture_output=True, timeout=120).stdout
    return found


def living(product, evidence):
    """Read what I4 needs. The jobs come first: what lives afterwards lives after the end that they tell of."""
    evidence.jobs = product.query("SELECT id, state, reason, due_at, ended_at FROM jobs_job")
    evidence.runs = product.query(
        "SELECT r.*, h.name AS host FROM jobs_run r JOIN agents_host h ON h.id = r.host_id"
    )
    evidence.host_histories = product.query(HOST_HISTORIES)
    over = {job["id"] for job in evidence.jobs if job["state"] in TERMINAL}
    closed = {run["id"] for run in evidence.runs if run["job_id"] in over}
    evidence.processes = {host.name: settled(host, closed) for host in product.fleet}
    return evidence


def settled(host, closed):
    """What lives on the host. The runner's own processes for a run that has just closed are given a moment."""

    def ending():
        allowed = {each + run for each in OF_THE_RUNNER for run in closed}
        return {pid for pid, command, run in found if command in allowed}

    found = processes_on(host)
    until = time.monotonic() + ENDS_S
    while ending() and time.monotonic() < until:
        time.sleep(0.05)
        gone = ending() - {pid for pid, _, _ in processes_on(host)}
        found = [each for each in found if each[0] not in gone]
    return found


def processes_on(host):
    """Return (pid, command, run) of each process with a run's id in its environment or command line."""
    found = []
    for pid in host.pids():
        command = command_of(pid, host.proc)
        carried = RUN_ID.search(environment_of(pid, host.proc) + command.encode())
        if carried:
            found.append((pid, command, carried[0].decode()))
    return found


def state_of(host):
    done = subprocess.run(
        host.as_user("python3", "-c", HOST_STATE), capture_output=True, text=True, timeout=120
    )
    if done.returncode:
        raise AssertionError(f"{host.name}: {done.stderr}")
    return json.loads(done.stdout)
