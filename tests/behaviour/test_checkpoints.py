"""A program finds its checkpoint wherever it runs again: after a restart, a retry, a move and a preemption.

The hosts share a disk here. Also: a job that does nothing on its GPU is flagged, and cancelled if the project wants it.
"""

from __future__ import annotations

import re
import sqlite3

import pytest

from tests.behaviour.observed_job import ObservedJob, finish, host_of, kill_replica, nothing_lives
from tests.flows.test_end_to_end import Browser
from tests.harness.product.product import PASSWORD
from tests.harness.wait_and_processes import wait_for

pytestmark = pytest.mark.needs_namespaces
P, ALL = "workerpool0-0", ("workerpool0-0", "workerpool1-0", "workerpool1-1")
# Longer than the grace of a cancel (1 s in these tests).
SAVING_S = 2


@pytest.fixture(scope="module")
def browser(yard):
    browser = Browser(yard.url)
    browser.send("/login", "/login", username="ada", password=PASSWORD, next="")
    return browser


def begun(observed, run, name=P):
    """Return the step at which a run began."""
    return int(re.search(r"begins at step (\d+)", observed.wait_for_line("begins at", name, run["id"]))[1])


def saved(observed, run, name=P):
    """Return the last step that the run has saved."""
    return max(int(step) for step in re.findall(r"saved step (\d+)", observed.log(name, run["id"])))


@pytest.fixture(scope="module")
def still(yard):
    """A job that holds a GPU, prints nothing and computes nothing. It starts first, because inactivity takes time."""
    return ObservedJob(yard, {"command": ["sleep", "1000"], "gpus": 1}, name="still").running()


class Kept:
    """A job that is killed, aborted, and moved to another host by an admin, one after the other."""

    def __init__(self, yard):
        self.base = f"{yard.fleet[0].shared}/kept"
        command = ["checkpoint-trainer", "--until", "~/finish-kept"]
        self.observed = observed = ObservedJob(
            yard,
            {"command": command, "gpus": 1},
            name="kept",
            baseOutputDirectory={"outputUriPrefix": self.base},
        ).running()
        observed.wait_for_line("saved step 10")
        kill_replica(yard, self.newest(), "checkpoint-trainer")
        self.trains_on(1)
        aborted = host_of(yard, self.newest())
        self.act(aborted, "cordon")
        kill_replica(yard, self.newest(), "checkpoint-trainer", "ABRT")
        self.trains_on(2)
        drained = host_of(yard, self.newest())
        self.act(drained, "drain")
        self.trains_on(3)
        self.while_running = observed.ours
        for host in (aborted, drained):
            self.act(host, "uncordon")
        finish(yard, "finish-kept")
        observed.over("SUCCEEDED")
        self.runs = observed.runs()

    def newest(self):
        return self.observed.run()

    def trains_on(self, number):
        """Wait until the run with this number, over all attempts, has saved something."""
        wait_for(lambda: len(self.observed.runs()) > number, f"run {number}", dump=self.observed.yard.tail)
        self.observed.wait_for_line("saved step", run=self.observed.runs()[number]["id"])

    def act(self, host, verb):
        self.observed.yard.client.call(
            "POST", f"{self.observed.yard.url}/api/v1/hosts/{host.name}:{verb}", json={}
        )


@pytest.fixture(scope="module")
def kept(yard, still):
    return Kept(yard)


def test_S0_19_S0_20_a_checkpoint_on_shared_storage_outlives_restart_retry_and_move(kept):
    runs = kept.runs
    places = [(run["attempt"], run["number"]) for run in runs]
    assert places == [(1, 0), (1, 1), (2, 0), (2, 1)], kept.observed.moves(P)
    hosts = [run["host"] for run in runs]
    assert hosts[0] == hosts[1] != hosts[2] != hosts[3], "restarted there, retried and moved elsewhere"
    for before, after in zip(runs, runs[1:], strict=False):
        assert begun(kept.observed, after) >= saved(kept.observed, before) >= 5
    assert kept.observed.ours["retries"] == 1 and kept.while_running["replicas"][0]["restarts"] == 0


def test_S0_11_S0_20_a_moved_replica_has_time_to_save(kept):
    """After SIGTERM it saved exactly the step at which the next run began."""
    left, last = kept.runs[-2:]
    assert "got SIGTERM" in kept.observed.log(run=left["id"])
    assert begun(kept.observed, last) == saved(kept.observed, left)


def age(yard, observed, minutes):
    """Move the samples of its GPUs into the past, so that the test need not wait for minutes."""
    run = observed.run()["id"]
    back = f"strftime('%Y-%m-%d %H:%M:%f', gpu_active_at, '-{minutes} minutes')"
    with sqlite3.connect(yard.database, timeout=30) as database:
        database.execute(f"UPDATE jobs_run SET gpu_active_at = {back} WHERE id = ?", (run,))
        # The time before the product was started counts for nothing, unless somebody kept it.
        database.execute("UPDATE agents_machineclock SET unsure_since = datetime('now', '-1 day')")
        database.execute("UPDATE jobs_job SET due_at = datetime('now') WHERE id = ?", (observed.id,))
    database.close()


def without_marks(page):
    """The page without the marks around the moments in its sentences."""
    return re.sub(r"</?span[^>]*>", "", page)


def flag(observed, name):
    return next((each["text"] for each in observed.ours["flags"] if each["flag"] == name), None)


def idle_rule(browser, **rule):
    page = "/projects/default/notifications"
    answer = browser.send(page, f"{page}/idle", **rule).text
    assert "The idle rule is changed." in answer or "There is no idle rule any more." in answer


class Watched:
    """A job that is flagged as stalled, then as idle by a rule that only flags, then cancelled by a rule that stops."""

    def __init__(self, yard, still, browser):
        self.stalled = wait_for(lambda: flag(still, "STALLED"), "the flag STALLED", dump=yard.tail)
        self.page = browser.get(f"/jobs/{still.id}/")
        self.idle_before = flag(still, "IDLE")
        idle_rule(browser, minutes="20")
        age(yard, still, 21)
        self.idle = wait_for(lambda: flag(still, "IDLE"), "the flag IDLE", dump=yard.tail)
        self.state = still.state
        idle_rule(browser, minutes="20", stops="1")
        still.over("CANCELLED")
        self.last_page = browser.get(f"/jobs/{still.id}/")
        idle_rule(browser, minutes="")


@pytest.fixture(scope="module")
def watched(yard, still, kept, browser):
    return Watched(yard, still, browser)


def test_a_replica_that_does_nothing_is_flagged_and_goes_on(watched, still):
    assert watched.stalled.startswith("No output, and no CPU or GPU in use: workerpool0-0 since ")
    assert watched.stalled in without_marks(watched.page) and "Stalled" in watched.page
    flags = [(row["from_state"], row["to_state"]) for row in still.moves("flag")]
    assert ("", "STALLED") in flags and watched.idle_before is None


def test_an_unused_gpu_is_flagged_and_its_job_cancelled_only_if_the_rule_says_so(watched, still, yard):
    assert watched.idle.startswith("All its GPUs have been at 0 % since ") and watched.state == "RUNNING"
    assert still.error["message"].startswith(
        "The job was stopped by the idle rule of project default. All its GPUs"
    )
    assert "The job was stopped by the idle rule of project default." in watched.last_page
    assert still.moves()[-1]["actor"] == "idle rule of project default"
    assert nothing_lives(yard, still.id)


class Spot:
    """A SPOT job has all GPUs; another job needs one; the SPOT job is preempted, waits, and comes back."""

    def __init__(self, yard, browser):
        command = ["checkpoint-trainer", "--until", "~/finish-spot", "--saving", str(SAVING_S)]
        command += ["--saving-until", "~/saved-spot"]
        self.observed = spot = ObservedJob(
            yard,
            {"command": command, "gpus": 8},
            {"command": command, "gpus": 8, "replicas": 2},
            name="spot",
            scheduling={"strategy": "SPOT"},
            baseOutputDirectory={"outputUriPrefix": f"{yard.fleet[0].shared}/spot"},
        ).running()
        for name in ALL:
            spot.wait_for_line("saved step 5", name)
        self.normal = ObservedJob(
            yard, {"command": ["replica", "--until", "~/finish-normal"], "gpus": 1}, name="normal"
        )
        self.leaving = wait_for(lambda: flag(spot, "STOPPING"), "it to be preempted", dump=yard.tail)
        self.page_leaving = browser.get(f"/jobs/{spot.id}/")
        self.waits_for_it = wait_for(lambda: self.normal.ours["reason"], "the other to say why it waits")
        finish(yard, "saved-spot")
        self.normal.running()
        self.waiting = wait_for(lambda: self.told_on_page(browser), "the reason why it waits", dump=yard.tail)
        finish(yard, "finish-normal")
        self.normal.over("SUCCEEDED")
        spot.running()
        self.runs = {name: spot.runs(name) for name in ALL}
        for name in ALL:
            begun(spot, self.runs[name][-1], name)
        finish(yard, "finish-spot")
        spot.over("SUCCEEDED")
        self.page = browser.get(f"/jobs/{spot.id}/")
        events = f"{yard.url}/api/v1/jobs/{spot.id}/events"
        self.events = yard.client.call("GET", events).json()["events"]

    def told_on_page(self, browser):
        """Return the job as soon as its page says why it waits."""
        ours = self.observed.ours
        page = without_marks(browser.get(f"/jobs/{self.observed.id}/"))
        return ours if ours["reason"] and ours["reason"] in page else None


@pytest.fixture(scope="module")
def spot(yard, watched, browser):
    return Spot(yard, browser)


def why(spot):
    return (
        f"Makes room for job {spot.normal.id}, normal, of ada: a SPOT job runs while nobody else needs its place."
        " It counts against nothing."
    )


def test_a_spot_job_makes_room_and_comes_back_at_its_own_cost(spot):
    ours = spot.observed.ours
    assert spot.observed.states() == ["QUEUED", "PENDING", "RUNNING"] * 2 + ["SUCCEEDED"]
    assert (ours["attempt"], ours["retries"]) == (2, 0)
    assert [replica["restarts"] for replica in ours["replicas"]] == [0, 0, 0]
    for name in ALL:
        assert [(run["attempt"], run["number"]) for run in spot.runs[name]] == [(1, 0), (2, 0)]


def test_a_spot_job_saves_within_its_grace_and_goes_on_from_there(spot):
    """Saving takes longer than the grace of a cancelled job; no replica is killed, and none repeats a step."""
    for name in ALL:
        first, second = spot.runs[name]
        assert (first["exitCode"], first["exitSignal"]) == (0, None)
        log = spot.observed.log(name, first["id"])
        assert "got SIGTERM" in log and log.endswith(f"saved step {saved(spot.observed, first, name)}\n")
        assert begun(spot.observed, second, name) == saved(spot.observed, first, name)


def test_a_spot_job_says_for_whom_it_leaves_and_for_what_it_waits(spot):
    assert why(spot) in spot.leaving and spot.leaving in spot.page_leaving
    assert "others are being stopped" in spot.waits_for_it
    assert "H100" in spot.waiting["reason"] and spot.waiting["spot"] and why(spot) in spot.page
    [left] = [event for event in spot.events if event["kind"] == "preempt"]
    assert (left["to"], left["cause"]) == ("QUEUED", why(spot))
