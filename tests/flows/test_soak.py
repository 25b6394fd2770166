"""The soak test (`make soak`): everything at once for SOAK_S seconds (600). Nothing is lost, grows or logs an error.

Short jobs run all the time, beside long ones, one that floods its log and one that is quiet. Viewers come and go,
shells are cut, and there is a fault every ten seconds. In the later part no process is killed any more, so that growth
can be seen.
SEED repeats the choices of a run, with the timing of this machine.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import threading
import time

import pytest
from websockets.exceptions import WebSocketException

from tests.bench.hosts_and_product import rss_mb
from tests.flows.test_campaign import Nemesis
from tests.flows.test_crash_points import Waker
from tests.harness import seeds
from tests.harness.hosts import Fleet
from tests.harness.product import Product, Refused, job_spec

SOAK_S = float(os.environ.get("SOAK_S") or 600)
SEED = seeds.draw()
SHORT_JOBS, VIEWERS, RECONNECTS, SHELLS, FLOOD_MB = 400, 20, 50, 10, 4096
SCALE = SOAK_S / 600
FAULT_EVERY_S = 10.0
# Until LAST_KILL_S processes are killed; WARM_S later the last new one has imported and connected all that it needs.
LAST_KILL_S, WARM_S = SOAK_S * 0.4, min(60.0, SOAK_S * 0.3)
JUDGED_FROM_S = max(SOAK_S / 2, LAST_KILL_S + WARM_S)
SAMPLES = 40
PATIENCE_S = 30.0
# The share of visits that may fail, because a process is not there for a moment while it is restarted.
MAX_IN_VAIN = 0.1
# Growth that is tolerated: a share of the mean, or this much in all.
SHARE = 0.02
NOTHING = {"rss_mb": 24.0, "fds": 12.0, "threads": 6.0, "sessions": 8.0, "rows_per_job": 1.0}
# Log lines about faults that the soak itself makes.
EXPECTED = re.compile(r"Lost connection to|Connection (refused|reset)|signal 9|SIGKILL|WorkerLost")

pytestmark = [pytest.mark.needs_namespaces, pytest.mark.timeout(SOAK_S * 2 + 600)]


@pytest.fixture
def yard():
    """A product with four hosts of its own, and a log budget that the disks here can hold."""
    settings = {"LEASE_S": "2", "TICK_S": "0.2", "LOG_BUDGET_MB": "64"}
    with Fleet(4) as fleet, Product("apart", data_mb=2000, **settings) as product:
        yield product.with_admin().with_hosts(fleet)


class Visitor(threading.Thread):
    """Repeats its visit until it is stopped. Unforeseen errors are kept."""

    def __init__(self, yard, dice, pause_s):
        super().__init__(daemon=True)
        self.yard, self.dice, self.pause_s = yard, dice, pause_s
        self.over = threading.Event()
        self.visits = self.in_vain = 0
        self.trouble = []

    def run(self):
        while not self.over.wait(self.pause_s * self.dice.uniform(0.5, 1.5)):
            try:
                self.visit()
                self.visits += 1
            except (OSError, WebSocketException, Refused):
                self.in_vain += 1  # a process that restarts; a job that is over
            except Exception as error:
                self.trouble.append(repr(error))


class Viewer(Visitor):
    """Reads a log from its beginning for a moment. What it saw is compared in the end."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.seen = {}

    def visit(self):
        job_id = self.dice.choice(self.yard.accepted)
        ends = time.monotonic() + self.dice.uniform(0.2, 2)
        with self.yard.client.log_socket(job_id) as reader:
            while time.monotonic() < (ends if reader.headers else ends + PATIENCE_S):
                reader.receive(timeout=0.5)
        if not reader.headers:
            raise TimeoutError(f"no message about the log of {job_id}")
        whole = not any("gap" in header for header in reader.headers)
        for run, text in reader.bytes.items():
            if whole and run and len(text) > len(self.seen.get(run, b"")):
                self.seen[run] = text[:200_000]


class ShellUser(Visitor):
    """Types a line into a long job's shell, reads the answer, and is cut off."""

    def __init__(self, yard, dice, pause_s, jobs):
        super().__init__(yard, dice, pause_s)
        self.jobs = jobs

    def visit(self):
        runs = [run for run in self.yard.runs(self.dice.choice(self.jobs)) if run["phase"] == "running"]
        if runs:
            with self.yard.client.shell(runs[-1]["id"]) as shell:
                shell.wait_until_open()
                number = self.dice.randrange(10**6)
                shell.say(f"echo so $(({number}+1))", f"so {number + 1}")
                shell.socket.socket.close()  # no farewell


class Gauge:
    """Measures what the product's processes hold, and how many rows the database has for each finished job.

    Jobs that run all the time are left out, because their history has lines about each fault.
    """

    def __init__(self, yard):
        self.yard = yard
        self.began = time.monotonic()
        self.samples = []
        self.after = 0  # the last of the jobs that run all the time

    def read(self):
        pids = list(self.yard.processes.all()) + [pid for _, pid in self.yard.extras]
        over = f"SELECT id FROM jobs_job WHERE ended_at IS NOT NULL AND id > {self.after}"
        rows = sum(
            self.count(f"{table} WHERE job_id IN ({over})")
            for table in ("jobs_run", "jobs_transition", "jobs_replica")
        )
        self.samples.append(
            {
                "at": time.monotonic() - self.began,
                "rss_mb": rss_mb(pids),
                "fds": sum(entries(f"/proc/{pid}/fd") for pid in pids),
                "threads": sum(entries(f"/proc/{pid}/task") for pid in pids),
                "sessions": self.count("pg_stat_activity"),
                "rows_per_job": rows / max(1, self.count(f"({over}) over")),
            }
        )

    def count(self, table):
        return self.yard.query(f"SELECT COUNT(*) AS n FROM {table}")[0]["n"]

    def growth(self, name):
        """Return the rise of the fitted line in the judged part, and the mean."""
        late = [each for each in self.samples if each["at"] > JUDGED_FROM_S]
        times, values = [each["at"] for each in late], [each[name] for each in late]
        middle, mean = sum(times) / len(times), sum(values) / len(values)
        spread = sum((at - middle) ** 2 for at in times)
        slope = sum((at - middle) * (value - mean) for at, value in zip(times, values, strict=True)) / spread
        return slope * (times[-1] - times[0]), mean


def entries(path):
    with contextlib.suppress(OSError):
        return len(os.listdir(path))
    return 0


class Soak:
    def __init__(self, yard):
        self.yard = yard
        self.dice = random.Random(SEED)
        self.nemesis = Nemesis(yard, self.dice)
        self.gauge = Gauge(yard)
        self.long = [
            self.submit(["replica", "--seconds", f"{SOAK_S * 0.9:.0f}", "--every", "0.2"], web_access=True)
            for _ in range(4)
        ]
        self.submit(["sleep", f"{SOAK_S * 0.5:.0f}"])
        self.submit(["replica", "--mb", f"{FLOOD_MB * SCALE:.0f}", "--seconds", "1"])
        self.gauge.after = max(yard.accepted)
        pause = 600 / RECONNECTS  # as often as in ten minutes, however short this one is
        self.visitors = [Viewer(yard, random.Random(SEED + n), pause) for n in range(VIEWERS)]
        self.visitors += [
            ShellUser(yard, random.Random(SEED - n), pause, self.long) for n in range(1, SHELLS + 1)
        ]

    def submit(self, command, **options):
        return self.yard.submit(job_spec(command, name="soak", **options), patience=120)

    def play(self):
        begin, faults, jobs, samples = time.monotonic(), 0, 0, 0
        for visitor in self.visitors:
            visitor.start()
        while (passed := time.monotonic() - begin) < SOAK_S:
            if jobs < SHORT_JOBS * SCALE * passed / SOAK_S:
                jobs += 1
                self.submit(["replica", "--seconds", f"{self.dice.uniform(0.1, 1.5):.1f}"])
            if faults < passed / FAULT_EVERY_S - 1:
                faults += 1
                self.strike(passed)
            if samples < SAMPLES * passed / SOAK_S:
                samples += 1
                self.gauge.read()
            self.yard.replace_dead_extras()
            self.nemesis.mend()
            time.sleep(0.1)
        self.gauge.read()

    def strike(self, passed):
        nemesis = self.nemesis
        at_first = [nemesis.kill, nemesis.kill, nemesis.stop, nemesis.reboot, nemesis.fill_disk]
        always = [nemesis.cut, nemesis.hole, nemesis.yard.redis.flush]
        chosen = self.dice.choice(always + (at_first if passed < LAST_KILL_S else []))
        nemesis.story.append(chosen.__name__)
        chosen()

    def leave(self):
        for visitor in self.visitors:
            visitor.over.set()
        for visitor in self.visitors:
            visitor.join(120)

    def judge(self):
        assert [trouble for visitor in self.visitors for trouble in visitor.trouble] == []
        visits = [(visitor.visits, visitor.in_vain) for visitor in self.visitors]
        assert all(well for well, _ in visits), visits
        assert sum(vain for _, vain in visits) <= MAX_IN_VAIN * sum(well for well, _ in visits), visits
        self.judge_views()
        self.judge_growth()
        cries = [
            line for line in self.yard.output.read_text(errors="replace").splitlines() if " ERROR " in line
        ]
        assert [line for line in cries if not EXPECTED.search(line)] == []

    def judge_views(self):
        """Check that what a viewer saw of a log without gaps is the beginning of the log."""
        seen = {}
        for viewer in self.visitors:
            for run, text in getattr(viewer, "seen", {}).items():
                seen.setdefault(run, []).append(text)
        for run in self.yard.query("SELECT * FROM jobs_run"):
            if run["id"] in seen and run["log_stored"] < 2_000_000:
                stored = self.yard.client.log(run["job_id"], run=run["id"], patience=30)
                assert all(stored.startswith(text) for text in seen[run["id"]]), run["id"]

    def judge_growth(self):
        for name, nothing in NOTHING.items():
            rise, mean = self.gauge.growth(name)
            print(f"{name}: {mean:.1f}, {rise:+.1f} in the end", flush=True)
            assert rise <= max(mean * SHARE, nothing), (
                f"{name} grows: {[round(each[name], 1) for each in self.gauge.samples]}"
            )


def starts(yard):
    """Return the seconds from acceptance to the first replica's start of each job, sorted."""
    rows = yard.query(
        "SELECT MIN(r.started_at) - j.created_at AS took FROM jobs_job j JOIN jobs_run r ON r.job_id = j.id"
        " GROUP BY j.id"
    )
    return sorted(row["took"].total_seconds() for row in rows if row["took"] is not None)


def test_a_soak_loses_nothing_grows_nowhere_and_logs_no_error(yard, request):
    seeds.keep(request.node.nodeid, SEED)
    print(f"SEED={SEED} SOAK_S={SOAK_S:.0f}", flush=True)
    with Waker(yard) as waker:
        soak = Soak(yard)
        try:
            soak.play()
        finally:
            soak.leave()
            soak.nemesis.mend(everything=True)
        waker.wait_until_all_are_awake()
        yard.settle(300)
        yard.check(f"of the soak with SEED={SEED}")
    soak.judge()
    visits = sum(visitor.visits for visitor in soak.visitors)
    vain = sum(visitor.in_vain for visitor in soak.visitors)
    took = starts(yard)
    print(f"{len(yard.accepted)} jobs, {len(soak.nemesis.story)} faults, {visits} visits, {vain} in vain")
    print(
        f"submit to start: p50 {took[len(took) // 2]:.2f} s, p99 {took[len(took) * 99 // 100]:.2f} s",
        flush=True,
    )
