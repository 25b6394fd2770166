"""The time until a crashed replica is back, a large gang has started, and a cancelled job is gone."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time

from tests.bench.figures import Figure, percentile, short, spread
from tests.bench.hosts_and_product import product_on_hosts
from tests.harness.product import job_spec
from tests.harness.wait_and_processes import wait_for
from tests.programs import replica

FIRST = re.compile(rb"line 0 at ([\d.]+)")
STAYS = ["replica", "--seconds", "600", "--every", "0.5"]
SLEEPS = ["sleep", "600"]
REPLICAS, HOSTS = 64, 16
SMALL = "bench-quarter"


def restart(options):
    """Measure the first restart of each job: further ones wait on purpose (jobs/rules/lifecycle/retry_waits.py)."""
    printed, seen = [], []
    with product_on_hosts("apart", hosts=2) as product:
        for _ in range(6 if options.quick else 25):
            job_id = product.submit(job_spec(STAYS, name="restart"))
            at_host, at_client = crash_ms(product, job_id)
            printed.append(at_host)
            seen.append(at_client)
            product.client.cancel(job_id)
        product.settle()
    p50 = percentile(printed, 0.5)
    yield Figure(
        "SIGKILL of a replica → its next run prints", spread(printed), "", None, "p50 ≤ 300 ms", p50 <= 300
    )
    yield Figure("the same → the line is at the API", spread(seen))


def crash_ms(product, job_id):
    """Measure with one clock: hosts and console are on one machine."""
    client = product.client
    client.wait_for_log(job_id, "line 0")
    run = product.runs(job_id)[-1]
    host, pid = process_of(product, run)
    next_run = f"{run['id'].rpartition('-')[0]}-r{run['number'] + 1}"
    begin = time.time()
    os.kill(host_pid(host, pid), 9)

    def first_line():
        known = any(each["id"] == next_run for each in product.runs(job_id))
        return FIRST.search(client.log(job_id, run=next_run)) if known else None

    found = wait_for(first_line, "the first line of the next run", every=0.005)
    return (float(found[1]) - begin) * 1000, (time.time() - begin) * 1000


def process_of(product, run):
    for host in product.fleet:
        for pid, command in host.processes(run["id"]):
            if "bin/replica" in command:
                return host, pid
    raise AssertionError(f"no process of {run['id']}")


def host_pid(host, pid):
    """Return this machine's PID of a host's process, so that no program has to be started to signal it."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/status") as status:
                    numbers = next(line for line in status if line.startswith("NSpid")).split()[1:]
                same = os.stat(f"/proc/{entry}/ns/pid").st_ino == os.stat(f"/proc/{host.pid}/ns/pid").st_ino
            except (OSError, StopIteration):
                continue
            if same and numbers[-1] == str(pid):
                return int(entry)
    raise AssertionError(f"{host.name} has no process {pid}")


def start_spread(options):
    """Measure the first to the last start of a large gang.

    All hosts and the console share this machine's cores, so the started programs compete with the product. A program
    that costs nothing shows the product's own part; a Python program is compared with the same without the product."""
    count = 3 if options.quick else 10
    with product_on_hosts("apart", hosts=HOSTS) as product:
        client = product.client
        machine = {"cpus": 0.25, "memoryMb": 64}
        client.call("PUT", f"{client.url}/api/v1/machineTypes/{SMALL}", json=machine)
        quiet = [spread_ms(product, SLEEPS) for _ in range(count)]
        busy = [spread_ms(product, STAYS) for _ in range(count)]
    p50 = percentile(quiet, 0.5)
    name = f"first → last start of {REPLICAS} replicas on {HOSTS} hosts"
    bare = [bare_spread_ms(SLEEPS) for _ in range(count)]
    yield Figure(name, spread(quiet), f"fork and exec {spread(bare)}", None, "p50 ≤ 500 ms", p50 <= 500)
    bare = [bare_spread_ms([sys.executable, replica.__file__, *STAYS[1:]]) for _ in range(count)]
    name = "the same, Python programs that need the cores too"
    ratio = percentile(busy, 0.5) / percentile(bare, 0.5)
    yield Figure(name, spread(busy), f"fork and exec {spread(bare)}", ratio)


def spread_ms(product, command):
    pools = [{"command": command, "machine": SMALL, "replicas": each} for each in (1, REPLICAS - 1)]
    job_id = product.submit(job_spec(*pools, name="spread"))
    product.client.wait(job_id, "RUNNING")
    starts = [run["started_at"] for run in product.runs(job_id)]
    hosts = {run["host_id"] for run in product.runs(job_id)}
    assert len(starts) == REPLICAS and len(hosts) > 1, f"{len(starts)} replicas on {len(hosts)} hosts"
    product.client.cancel(job_id)
    product.settle()
    return (max(starts) - min(starts)) * 1000


def bare_spread_ms(command):
    """Measure the same programs, started by fork and exec alone: Popen returns when a program was executed."""
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as ends:
        environ, starts = {**os.environ, "LEDGER": place}, []
        for _ in range(REPLICAS):
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=place, env=environ)
            starts.append(time.perf_counter())
            ends.callback(process.wait)
            ends.callback(process.kill)
        return (starts[-1] - starts[0]) * 1000


def cancel(options):
    count = 5 if options.quick else 30
    answered, gone = [], []
    with product_on_hosts("apart", hosts=2) as product:
        for _ in range(count):
            first, last = cancel_ms(product)
            answered.append(first)
            gone.append(last)
        product.settle()
    p50 = percentile(gone, 0.5)
    worst = short(max(answered))
    yield Figure("cancel asked → the last process gone", spread(gone), "", None, "p50 ≤ 500 ms", p50 <= 500)
    yield Figure(
        "cancel asked → answered", spread(answered), "", None, f"≤ 1 s (worst {worst})", max(answered) <= 1000
    )


def cancel_ms(product):
    """Measure a cancel of two replicas that end at SIGTERM, as most programs do, so that no grace period passes."""
    job_id = product.submit(job_spec(STAYS, STAYS, name="cancel"))
    product.client.wait(job_id, "RUNNING")
    for name in ("workerpool0-0", "workerpool1-0"):
        product.client.wait_for_log(job_id, "line 0", name)
    found = [process_of(product, run) for run in product.runs(job_id)]
    pids = [host_pid(host, pid) for host, pid in found]
    begin = time.perf_counter()
    product.client.cancel(job_id)
    answered = time.perf_counter() - begin
    wait_for(
        lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), "the processes to go", every=0.002
    )
    gone = time.perf_counter() - begin
    product.client.wait(job_id, "CANCELLED")
    return answered * 1000, gone * 1000
