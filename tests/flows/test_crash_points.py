"""At every commit, send and receive (failpoint) of the console a process is killed, or suspended past its lease.

One product with six dispatchers goes through all failpoints: the test arms a few at a time, submits jobs until a
process has arrived at each, and in the end every invariant holds.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from functools import cached_property

import pytest

from agents.infra import failpoints
from tests.flows.test_brought import Storage, archive, with_code
from tests.harness.product import job_spec
from tests.harness.product.client import TERMINAL, Refused
from tests.harness.product.held_shell import HeldShell
from tests.harness.wait_and_processes import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.needs_namespaces]

IN_WEB = ("submit.before", "submit.after", "cancel.before")
# Reached only by special acts on hosts and logs, not by jobs that go well.
RARE = (
    "receive.gap",
    "receive.error",
    "receive.sample",
    "receive.load",
    "install.before",
    "install.after",
    "roll.written",
    "roll.after",
)
# Reached only when foreign processes use GPUs.
STRANGE = (*(f"send.evict.{when}" for when in ("before", "after")),)
STRANGE += ("receive.gpus", "receive.evicted")
# Reached only when shells are recorded.
RECORDED = (*(f"send.cast_pull.{when}" for when in ("before", "after")), "receive.cast", "receive.cast_end")
# Reached only when a program reports metrics.
REPORTED = ("receive.metrics", "receive.metrics_end")
# Reached only when a host must be prepared before a run starts there.
PREPARED = (
    *(f"send.{kind}.{when}" for kind in ("prepare", "unprepare") for when in ("before", "after")),
    "receive.prepared",
)
# Reached only when an admin has a host remove what it keeps.
KEPT = (*(f"send.discard.{when}" for when in ("before", "after")), "receive.discarded")
# A server of the host itself that accepts connections and never says a word: what is fetched from it takes for ever.
MUTE_PORT = 4433
MUTE = f"import socket, time; s = socket.create_server(('127.0.0.1', {MUTE_PORT})); time.sleep(3600)"
# Reached only where there are studies: tests/flows/test_tuning.py.
OF_STUDIES = ("tuning.drawn", "tuning.before", "tuning.after")
ELSEWHERE = {*IN_WEB, *RARE, *STRANGE, *RECORDED, *PREPARED, *KEPT, *REPORTED, *OF_STUDIES}
POINTS = [point for point in failpoints.NAMES if point not in ELSEWHERE]
# Truncates its own log after the host has sent it, also a busy host, so that there is a gap to report.
CUTTER = "echo begin; sleep 3; : > /proc/self/fd/1; echo again; sleep 0.3"
MAX_JOBS_AT_ONCE = 6
AT_ONCE = 8
WALK_S = 400
UNINSTALL_EVERY_S = 6.0
SHUT_EVERY_S = 2.0
# Beside those of `up`.
CROWD, ALONE = {"dispatcher": 5, "worker": 2}, {"dispatcher": 1, "worker": 1}


@pytest.fixture(scope="module")
def shape():
    return "apart"


@pytest.fixture(scope="module")
def alone_again(shared_product):
    """Go back to the usual number of processes, which the next file expects."""
    yield
    if shared_product.product:
        shared_product.product.keep_extras(**ALONE)


@pytest.fixture
def crowd(yard, alone_again):
    """Six dispatchers and three workers, so that some go on while others are dead or suspended."""
    yard.settle()
    yard.keep_extras(**CROWD)
    yield yard
    yard.disarm()
    yard.processes.resume()


class Passers:
    """Jobs that reach all failpoints: short ones, gangs, and some that are cancelled while they run."""

    def __init__(self, yard, *names):
        self.yard = yard
        self.running = {}
        self.kinds = itertools.cycle(getattr(self, name) for name in names or ("short", "gang", "stubborn"))

    def long(self):
        """A job whose log is rolled into a segment when it is over."""
        return job_spec(["replica", "--mb", "0.3", "--seconds", "0.2"], name="long")

    def steady(self):
        """A job that runs long enough for a sample, which comes every ten seconds."""
        return job_spec(["replica", "--seconds", "15"], name="steady")

    def shelled(self):
        """A job on which shells open."""
        return job_spec(["replica", "--seconds", "15"], name="shelled", web_access=True)

    def reporter(self):
        """A job whose program reports metrics."""
        return job_spec(["replica", "--seconds", "0.3", "--report", "500"], name="reporter")

    def cutter(self):
        return job_spec(["sh", "-c", CUTTER], name="cutter")

    def imaged(self):
        """A job that hosts cannot be prepared for: they have no such image, or no engine at all."""
        document = job_spec(["replica", "--seconds", "0.3"], name="imaged")
        (pool,) = document["jobSpec"]["workerPoolSpecs"]
        pool["containerSpec"]["imageUri"] = "localhost/trainyard/none:1"
        return document

    def slow(self):
        """A job that is cancelled while its host prepares it, which takes for ever."""
        document = job_spec(["replica", "--seconds", "0.3"], name="slow")
        (pool,) = document["jobSpec"]["workerPoolSpecs"]
        url = f"https://127.0.0.1:{MUTE_PORT}/code.git"
        pool["trainyard"] = {"code": {"git": {"url": url, "revision": "main"}}}
        return document

    def bringer(self):
        """A job that brings its code, which its host keeps."""
        pool = with_code({"command": ["python3", "train.py"]}, artifact=self.code)
        return {"displayName": "bringer", "jobSpec": {"workerPoolSpecs": [pool]}}

    @cached_property
    def code(self):
        return Storage(self.yard.client).artifact(archive("print('code', flush=True)"))

    def short(self):
        return job_spec({"command": ["replica", "--seconds", "0.3"], "gpus": 3}, name="short")

    def gang(self):
        pool = {"command": ["replica", "--seconds", "0.3"], "gpus": 3}
        return job_spec(pool, {**pool, "replicas": 2}, name="gang")

    def stubborn(self):
        pool = {"command": ["replica", "--ignore-term", "--seconds", "900"], "gpus": 3}
        return job_spec(pool, name="to be cancelled")

    def send_more(self):
        # From the database: the web process has enough to do.
        known = {row["id"]: row["state"] for row in self.yard.query("SELECT id, state FROM jobs_job")}
        states = {job_id: known[job_id] for job_id in self.running}
        self.running = {
            job_id: name for job_id, name in self.running.items() if states[job_id] not in TERMINAL
        }
        for job_id in self.running:
            if states[job_id] == "RUNNING" and self.running[job_id] == "to be cancelled":
                self.yard.client.cancel(job_id, patience=60)
        for job_id in self.preparing():
            if self.running.get(job_id) == "slow":
                self.yard.client.cancel(job_id, patience=60)
        if len(self.running) < MAX_JOBS_AT_ONCE:
            document = next(self.kinds)()
            self.running[self.yard.submit(document, patience=60)] = document["displayName"]

    def preparing(self):
        working = "JOIN jobs_preparationneed n ON n.run_id = r.id JOIN jobs_preparation p ON p.id = n.preparation_id"
        sql = f"SELECT DISTINCT r.job_id FROM jobs_run r {working} WHERE p.phase = 'WORKING'"  # noqa: S608
        return [row["job_id"] for row in self.yard.query(sql)]

    def finish(self):
        for job_id, name in self.running.items():
            if name in ("to be cancelled", "slow"):
                self.yard.client.cancel(job_id, patience=60)


class Waker(threading.Thread):
    """Resumes suspended processes after their leases. A thread, because the test may wait for a suspended process."""

    def __init__(self, yard):
        super().__init__(daemon=True)
        self.yard = yard
        self.over = threading.Event()
        self.woken = 0
        self.asleep = {}

    def run(self):
        past_the_lease = float(self.yard.settings["LEASE_S"]) + 1.0
        while not self.over.wait(0.3):
            for pid in self.yard.processes.stopped():
                if time.monotonic() - self.asleep.setdefault(pid, time.monotonic()) > past_the_lease:
                    self.yard.processes.resume(pid)
                    del self.asleep[pid]
                    self.woken += 1

    def wait_until_all_are_awake(self):
        wait_for(lambda: not self.yard.processes.stopped(), "all sleepers to be awake")

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()


def walk(yard, points, how, *kinds, meanwhile=lambda: None):
    """Arm a few failpoints at a time and submit jobs until a process has arrived at each."""
    passers, waiting = Passers(yard, *kinds), list(points)
    deadline = time.monotonic() + WALK_S
    while waiting or yard.armed():
        while waiting and len(yard.armed()) < AT_ONCE:
            yard.arm(waiting.pop(0), how)
        assert time.monotonic() < deadline, (
            f"no process reached {sorted(yard.armed())}; not tried: {waiting}\n{yard.tail()}"
        )
        yard.replace_dead_extras()
        passers.send_more()
        meanwhile()
        time.sleep(0.1)
    passers.finish()


class Trouble:
    """Does to hosts what leads to the rare failpoints, while they are armed, a little at a time."""

    def __init__(self, yard):
        self.yard = yard
        self.due = dict.fromkeys(("uninstall", "shut", "trespass", "discard", "shell"), 0.0)
        self.foreign_processes = {}
        self.mute = {host: in_background(host, f'python3 -c "{MUTE}"') for host in yard.fleet}

    def __call__(self):
        armed = self.yard.armed()
        if any(point.startswith("install") for point in armed) and self.is_time(
            "uninstall", UNINSTALL_EVERY_S
        ):
            self.uninstall(self.yard.fleet[0])
        if self.is_time("shut", SHUT_EVERY_S):
            self.shut(self.yard.fleet[1], "receive.error" in armed and not self.is_shut)
        if armed & set(STRANGE) and self.is_time("trespass", 1.0):
            for host in self.yard.fleet:
                self.trespass(host)
        if armed & set(KEPT) and self.is_time("discard", 1.0):
            for host in self.yard.fleet:
                self.discard(host)
        if armed & set(RECORDED) and self.is_time("shell", 1.0):
            self.open_and_end_a_shell()

    def open_and_end_a_shell(self):
        """What it has shown is fetched when it is over."""
        of_job = "SELECT id FROM jobs_job WHERE display_name = 'shelled'"
        runs = self.yard.query(f"SELECT id FROM jobs_run WHERE phase = 'running' AND job_id IN ({of_job})")
        with contextlib.suppress(AssertionError):
            for run in runs[:1]:
                shell = HeldShell(self.yard.client, run["id"]).connect(patience=5)
                shell.type(b"exit\n").until(lambda each: each.over, "its end", patience=5)

    def is_time(self, what, every):
        due = self.due[what] <= time.monotonic()
        if due:
            self.due[what] = time.monotonic() + every
        return due

    def uninstall(self, host):
        """Remove the runner and end the link: the next dial finds no runner, and has time to install one."""
        host.run_inside("sh", "-c", f"rm -rf {host.home}/.trainyard/bin")
        serving = [str(pid) for pid, command in host.processes(" serve") if command.endswith(" serve")]
        host.run_inside("kill", "-9", *serving, check=False)

    is_shut = False

    def shut(self, host, shut):
        """Make the runs directory unwritable: the host answers a start with an error, and the start is sent again."""
        self.is_shut = shut
        host.run_inside(
            "sh", "-c", f"chmod {'500' if shut else '700'} {host.home}/.trainyard/*/runs", check=False
        )

    def trespass(self, host):
        """Put a foreign process on the first GPU until an admin has it killed; then another one."""
        if host not in self.foreign_processes or not process_alive_on(host, self.foreign_processes[host]):
            self.foreign_processes[host] = pid = in_background(host, "sleep 3600")
            host.gpus(apps=[{"gpu": 0, "pid": pid}])
        url = f"{self.yard.url}/api/v1/hosts/{host.name}/gpus"
        for gpu in self.yard.client.call("GET", url, patience=60).json()["gpus"]:
            if gpu["state"] == "quarantined" and gpu["holders"]:
                with contextlib.suppress(Refused):
                    self.yard.client.call("POST", f"{url}/{gpu['uuid']}:evict", patience=60)

    def discard(self, host):
        """Have it remove what no job needs: the next job brings it anew."""
        url = f"{self.yard.url}/api/v1/hosts/{host.name}/kept"
        for each in self.yard.client.call("GET", url, patience=60).json()["kept"]:
            if not each["inUse"]:
                with contextlib.suppress(Refused):  # a job that needs it was submitted just now
                    self.yard.client.call("POST", f"{url}/{each['kind']}/{each['key']}:discard", patience=60)

    def end(self):
        self.shut(self.yard.fleet[1], False)
        for host in self.yard.fleet:
            wait_for(lambda: not host.processes("/code.git"), f"{host.name} to fetch for nobody")  # noqa: B023
            host.run_inside("kill", "-9", str(self.mute[host]), check=False)
        for host, pid in self.foreign_processes.items():
            host.run_inside("kill", "-9", str(pid), check=False)
            host.gpus(apps=[])
        kept_out = "SELECT uuid FROM agents_gpu WHERE state <> 'ok'"
        wait_for(lambda: not self.yard.query(kept_out), "all GPUs to be free again", dump=self.yard.tail)


def in_background(host, command):
    return int(host.run_inside("sh", "-c", f"{command} >/dev/null 2>&1 & echo $!").stdout)


def process_alive_on(host, pid):
    return host.path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("how", ["kill", pytest.param("stop", marks=pytest.mark.exhaustive)])
def test_each_process_is_killed_or_suspended_at_each_rare_failpoint(crowd, how):
    """Runners are missing or cannot write, foreign processes use GPUs, logs are cut, and rolled into segments."""
    trouble = Trouble(crowd)
    with Waker(crowd) as waker:
        try:
            kinds = ("steady", "reporter", "long", "shelled", "cutter", "imaged", "slow", "bringer", "short")
            points = (*RARE, *STRANGE, *RECORDED, *PREPARED, *KEPT, *REPORTED)
            walk(crowd, points, how, *kinds, meanwhile=trouble)
            waker.wait_until_all_are_awake()
        finally:
            trouble.end()
    crowd.check(f"after a {how} where trouble leads")


def test_each_process_is_killed_at_each_failpoint(crowd):
    walk(crowd, POINTS, "kill")
    crowd.check("after a kill at each point")


def test_each_process_is_suspended_past_the_lease_at_each_failpoint(crowd):
    with Waker(crowd) as waker:
        walk(crowd, POINTS, "stop")
        waker.wait_until_all_are_awake()
    assert waker.woken >= len(POINTS) // 2  # threads of one process may have arrived at several points
    crowd.check("after a stop past the lease at each point")


@pytest.mark.parametrize("how", ["kill", pytest.param("stop", marks=pytest.mark.exhaustive)])
def test_the_web_process_dies_while_it_accepts_a_job(yard, how):
    """The web process dies before and after the commit: the same key makes one job in the end."""
    with Waker(yard):
        for point in IN_WEB:
            yard.arm(point, how)
            document = job_spec(
                ["replica", "--seconds", "20" if "cancel" in point else "0.2"], name=f"{point} {how}"
            )
            ids = {yard.client.submit(document, key=f"{point}-{how}", patience=60) for _ in range(2)}
            assert len(ids) == 1
            yard.accepted += ids
            if "cancel" in point:
                yard.client.wait(*ids, "RUNNING")
                yard.client.cancel(*ids, patience=60)
                yard.client.wait(*ids, "CANCELLED")
        assert not yard.armed()
    yard.check()
