"""A job, and what is left of it when it is over: its resource, runs, history, replicas and logs."""

from __future__ import annotations

import html
import json
from itertools import pairwise

from tests.harness.crawl import Visitor
from tests.harness.product import job_spec
from tests.harness.product.client import TERMINAL
from tests.harness.product.product import PASSWORD
from tests.harness.wait_and_processes import wait_for

GRPC_INVALID, GRPC_EXHAUSTED, GRPC_INTERNAL, GRPC_CANCELLED = 3, 8, 13, 1


class ObservedJob:
    """A submitted job. `over()` waits for its end."""

    def __init__(self, yard, *pools, **options):
        self.yard = yard
        self.document = job_spec(*pools, **options)
        self.id = yard.submit(self.document)

    def running(self):
        self.yard.client.wait(self.id, "RUNNING")
        return self

    def over(self, state=None, timeout=300):
        try:
            self.yard.client.wait(self.id, *([state] if state else TERMINAL), timeout=timeout)
        except AssertionError as problem:
            said = [f"{each['name']}:\n{self.log(each['name'])[-2000:]}" for each in self.ours["replicas"]]
            raise AssertionError("\n".join([str(problem)[-1500:], *said])) from None
        return self

    @property
    def job(self):
        return self.yard.client.job(self.id)

    @property
    def state(self):
        return self.yard.client.state(self.id)

    @property
    def ours(self):
        """The job as /api/v1/ shows it."""
        return self.yard.client.call("GET", f"{self.yard.url}/api/v1/jobs/{self.id}").json()

    @property
    def error(self):
        return self.job.get("error")

    def replica(self, name="workerpool0-0"):
        return next(replica for replica in self.ours["replicas"] if replica["name"] == name)

    def runs(self, name="workerpool0-0"):
        return self.replica(name)["runs"]

    def run(self, name="workerpool0-0", number=-1):
        return wait_for(lambda: self.runs(name)[number:][:1], f"a run of {name}")[0]

    def states(self, subject="job"):
        """Return the states that the job, or a replica, went through."""
        return [row["to_state"] for row in self.moves(subject)]

    def moves(self, subject="job"):
        wanted = f"job_id = {self.id} AND subject = '{subject}'"
        return self.yard.query(f"SELECT * FROM jobs_transition WHERE {wanted} ORDER BY id")

    def events(self):
        return self.yard.client.call("GET", f"{self.yard.url}/api/v1/jobs/{self.id}/events").json()["events"]

    def waited(self):
        """Return the seconds between the job's first two states."""
        first, second = next(pairwise(self.moves()))
        return second["at"] - first["at"]

    def page_in(self, language):
        """The page of the job, as a browser shows it that asks for this language."""
        visitor = Visitor(self.yard.url, "ada").log_in(PASSWORD)
        answer = visitor.get(f"/jobs/{self.id}/", **{"Accept-Language": language})
        assert answer.status_code == 200 and answer.headers["Content-Language"] == language.lower()
        return html.unescape(answer.text)

    # logs

    def log(self, name="workerpool0-0", run=None):
        return self.yard.client.log(self.id, name, run).decode()

    def wait_for_line(self, text, name="workerpool0-0", run=None, times=1):
        def seen():
            if run and run not in [row["id"] for row in self.yard.runs(self.id)]:
                return None  # a replica's next run begins a moment after its last one ended
            log = self.log(name, run)
            return log if log.count(text) >= times else None

        return wait_for(seen, f"{text!r} in the log of {name}", dump=self.yard.tail)

    def environment(self, name="workerpool0-0", run=None):
        """Return the environment that programs/cluster_member.py printed."""
        log = self.wait_for_line("met ", name, run)
        line = next(line for line in log.splitlines() if line.startswith("environment "))
        return json.loads(line.removeprefix("environment "))


def finish(yard, marker):
    """Make the file ~/marker on all hosts, for which replicas wait."""
    for host in yard.fleet:
        host.write(f"{host.home}/{marker}", "")


def host_of(yard, run):
    return next(host for host in yard.fleet if host.name == run["host"])


def kill_replica(yard, run, program, signal="KILL"):
    """Send SIGKILL to the process of the replica, as anybody on the host could."""
    host = host_of(yard, run)

    def pid():
        return next((pid for pid, command in host.processes(run["id"]) if f"bin/{program}" in command), None)

    host.run_inside("kill", f"-{signal}", str(wait_for(pid, f"the process of {run['id']}")))


def nothing_lives(yard, job_id):
    return not any(host.processes(f"{job_id}-workerpool") for host in yard.fleet)
