"""Shared by several flows: jobs that run until a test ends them, and functions that look at their runs."""

from __future__ import annotations

import itertools

from tests.harness.product import job_spec
from tests.harness.wait_and_processes import wait_for

NAMES = itertools.count()
# As often as a replica writes into its ledger. Each line goes all the way to the database: at 20 a second, two replicas
# that a test only keeps running would use a quarter of a core.
PRINT_EVERY_S = 0.2


class LongJob:
    """A job whose replicas print until `finish()`. With 5 GPUs each, two replicas never share a host."""

    def __init__(self, yard, replicas=1, gpus=5, name="long", options=(), **changes):
        self.yard = yard
        self.name = name
        self.marker = f"finish-{next(NAMES)}"
        command = ["replica", "--until", f"~/{self.marker}", "--every", str(PRINT_EVERY_S), *options]
        pools = [{"command": command, "gpus": gpus}]
        if replicas > 1:
            pools.append({"command": command, "gpus": gpus, "replicas": replicas - 1})
        self.id = yard.submit(job_spec(*pools, name=name, **changes))

    def running(self):
        self.yard.client.wait(self.id, "RUNNING")
        return self

    def finish(self):
        for host in self.yard.fleet:
            host.write(f"{host.home}/{self.marker}", "")

    def succeeded(self):
        self.finish()
        self.yard.client.wait(self.id, "SUCCEEDED")
        return self

    def starts(self):
        return [line["run"] for line in self.yard.ledger(self.id) if line["event"] == "start"]

    def run(self, replica="workerpool0-0"):
        """Return the newest run of a replica."""
        return [run for run in self.yard.runs(self.id) if f"-{replica}-" in run["id"]][-1]

    def host(self, replica="workerpool0-0"):
        [row] = self.yard.query(f"SELECT name FROM agents_host WHERE id = {self.run(replica)['host_id']}")
        return next(host for host in self.yard.fleet if host.name == row["name"])

    def grows(self, replica="workerpool0-0", what="its log to grow here"):
        """Wait until bytes that were not there before are stored."""
        before = self.run(replica)["log_stored"]
        wait_for(lambda: self.run(replica)["log_stored"] > before, what, dump=self.yard.tail)

    def flags(self):
        [row] = self.yard.query(f"SELECT flags FROM jobs_job WHERE id = {self.id}")
        return [flag["flag"] for flag in row["flags"]]


def replica_process(host, run_id):
    """Return the PID of the replica itself, not of its keepers; None when there is none."""
    return next((pid for pid, command in host.processes(run_id) if "bin/replica" in command), None)


def stopped_on(host):
    """Return the PIDs of processes on a host that are stopped by SIGSTOP."""
    found = []
    for pid in host.pids():
        try:
            stat = host.path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue
        if stat.rpartition(")")[2].split()[0] == "T":
            found.append(pid)
    return found
