"""The clocks of the console are set, all of them or of one process, while it runs and before it starts: no effect."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
import requests

from tests.flows.running_jobs import LongJob
from tests.harness.hosts import Fleet
from tests.harness.invariants import WHEN_QUIET, check, nothing_lives_after_the_end
from tests.harness.product import Product, job_spec
from tests.harness.wait_and_processes import wait_for
from tests.harness.wrong_clocks import WrongClocks

pytestmark = pytest.mark.slow
JUMPS = (7200, -3600, -86400)
AHEAD_S = JUMPS[0]
LIMIT_S = 3000
PROCESSES = ("up", "web", "worker", "dispatcher", "beat")
AT_ONCE = 60


@pytest.fixture(scope="module", params=["embedded", "apart"])
def shape(request):
    return request.param


@pytest.fixture(scope="module")
def clocks():
    return WrongClocks()


@pytest.fixture(scope="module")
def timed(shape, clocks):
    """A product of its own, whose clocks can be set."""
    clocks.set(0)  # the last test of another shape leaves them wrong
    fleet = Fleet(1).boot()
    product = Product(shape, clocks=clocks)
    try:
        yield product.start().with_admin().with_hosts(fleet)
    finally:
        product.close()
        fleet.close()


def services_of(product):
    return ("extra", "postgres", "redis") if product.shape == "apart" else ("broker",)


@pytest.fixture(scope="module")
def long_job(timed):
    return LongJob(timed, gpus=1, name="runs all the time", timeout_s=LIMIT_S).running()


def is_well(product, long_job, what):
    """A job goes its way quickly, pages answer, the running job runs on, and what it prints is taken in."""
    short = product.submit(job_spec(["replica", "--seconds", "0.1"], name=what))
    product.client.wait(short, "SUCCEEDED", timeout=AT_ONCE)
    long_job.grows(what=f"the log to grow: {what}")
    assert product.client.state(long_job.id) == "RUNNING", what


def jumps_shown(product):
    """By how many hours clocks were set, as admins are shown it."""
    return {round(row["seconds"] / 3600) for row in product.query("SELECT seconds FROM agents_clockjump")}


def is_shown(product, jump):
    """Processes look at the clocks every two seconds: the next jump must not come before one of them has looked."""
    wait_for(lambda: round(jump / 3600) in jumps_shown(product), f"{jump:+d} s to be shown", AT_ONCE)


@pytest.mark.parametrize("jump", JUMPS)
def test_all_clocks_are_set_while_a_job_runs(timed, clocks, long_job, jump):
    for seconds, step in ((jump, jump), (0, -jump)):
        clocks.set(seconds)
        is_well(timed, long_job, f"all clocks {seconds:+d} s")
        is_shown(timed, step)


@pytest.mark.parametrize("jump", JUMPS)
def test_the_clock_of_one_process_is_set_while_a_job_runs(timed, clocks, long_job, jump):
    for role in (*PROCESSES, *services_of(timed)):
        clocks.set(jump, role)
        is_well(timed, long_job, f"clock of {role} {jump:+d} s")
        clocks.set(0, role)
    is_well(timed, long_job, "right again")


@pytest.mark.parametrize("seconds", [*JUMPS, 0])
def test_the_console_is_started_with_a_wrong_clock(timed, clocks, long_job, seconds):
    """One start after the other, each with another clock; the last with a right one."""
    timed.kill()
    clocks.set(seconds)
    timed.start()
    is_well(timed, long_job, f"started {seconds:+d} s wrong")


def test_every_outcome_and_time_is_right_and_the_jumps_are_shown(timed, clocks, long_job):
    """After all of the above. I4 alone compares a host's clock with Trainyard's, which has come nearer to wrong ones by
    some tenths of a second."""
    long_job.succeeded()
    timed.settle()
    check(timed.evidence(), [law for law in WHEN_QUIET if law is not nothing_lives_after_the_end])
    assert len(long_job.starts()) == 1
    rows = timed.query("SELECT at, job_id FROM jobs_transition WHERE subject = 'job' ORDER BY job_id, id")
    now = time.time()
    wrong = [row["at"] - now for row in rows if not now - 2400 < row["at"] < now + 30]
    assert wrong == [], "times are Trainyard's"
    # Two processes follow the database's clock in steps of their own: some milliseconds lie between them.
    back = [
        (before, after)
        for before, after in pairwise(rows)
        if before["job_id"] == after["job_id"] and after["at"] < before["at"] - 0.2
    ]
    assert back == []
    assert {2, -2, -1, 1, -24, 24} <= jumps_shown(timed)
    health = requests.get(f"{timed.url}/healthz", timeout=60).json()
    assert health["clock_jumps"] > 0 and abs(health["clock_ahead_s"]) < 30, health


def test_the_machine_is_started_again_with_a_clock_that_is_ahead_while_a_job_runs(timed, clocks):
    """Nobody knows how much time passed. By the console's clock the job is over its limit, by its host's it is not.

    From here on Trainyard's time is that of the wrong clock.
    """
    job = LongJob(timed, gpus=1, name="outlives its machine's clock", timeout_s=LIMIT_S).running()
    timed.kill()
    timed.execute("UPDATE agents_machineclock SET machine = 'the boot before'")
    clocks.set(AHEAD_S)
    timed.start()
    is_well(timed, job, "started again, two hours ahead")
    ahead_s = (
        timed.query("SELECT noted_at FROM agents_machineclock ORDER BY id DESC")[0]["noted_at"] - time.time()
    )
    assert ahead_s > LIMIT_S, "the time was lost"
    job.succeeded()
    timed.settle()
    assert len(job.starts()) == 1


def test_a_timeout_is_kept_all_the_same(timed):
    job = LongJob(timed, gpus=1, name="over its limit", timeout_s=5).running()
    timed.client.wait(job.id, "CANCELLED")
    assert "timeout of 5s" in timed.client.job(job.id)["error"]["message"]
