"""How jobs start, wait and are ended from outside: parallel starts, the queue, timeouts, cancels, stockouts."""

from __future__ import annotations

import signal
import subprocess

import pytest

from tests.behaviour.observed_job import (
    GRPC_CANCELLED,
    GRPC_EXHAUSTED,
    GRPC_INTERNAL,
    ObservedJob,
    finish,
    host_of,
    nothing_lives,
)
from tests.flows.running_jobs import stopped_on
from tests.harness.wait_and_processes import wait_for

NAMES = ("workerpool0-0", "workerpool1-0", "workerpool1-1")
STAYS = ["replica", "--seconds", "600", "--every", "0.2"]
TAKE_ALL_PORTS = """
import resource, socket, sys, time
low, high = int(sys.argv[1]), int(sys.argv[2])
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
taken = []
for port in range(low, high + 1):
    try:
        taken.append(socket.create_server(("", port)))
    except OSError:
        pass
print("taken", flush=True)
sys.stdin.read()
"""


class SlowStart:
    """A job on three hosts, of which the primary's is slow; and a job for which there is no room meanwhile."""

    def __init__(self, yard):
        hosts = yard.fleet.hosts
        for host in hosts:
            host.arm("before_gate", "stop")
        command = ["cluster-member", "--until", "~/finish-slow"]
        self.observed = ObservedJob(
            yard, {"command": command, "gpus": 5}, {"command": command, "gpus": 5, "replicas": 2}, name="slow"
        )
        for host in hosts:
            wait_for(lambda host=host: stopped_on(host), f"a keeper of {host.name} to stand still")
        slow = host_of(yard, self.observed.run())
        for host in hosts:
            if host is not slow:
                self.go_on(host)
        self.waiting = [self.observed.wait_for_line("waits for", name) for name in NAMES[1:]]
        self.meanwhile = self.observed.ours
        self.blocked = ObservedJob(yard, {"command": ["cluster-member"], "gpus": 8}, name="no room")
        wait_for(lambda: self.blocked.ours["reason"] != "Waits to be placed.", "a reason")
        self.blocked_meanwhile = self.blocked.ours
        self.go_on(slow)
        self.observed.running()
        self.environments = [self.observed.environment(name) for name in NAMES]
        self.running = self.observed.ours
        finish(yard, "finish-slow")
        self.observed.over("SUCCEEDED")
        self.blocked.over("SUCCEEDED")

    @staticmethod
    def go_on(host):
        for pid in stopped_on(host):
            host.run_inside("kill", f"-{signal.SIGCONT.value}", str(pid))


@pytest.fixture(scope="module")
def slow(yard):
    return SlowStart(yard)


def started(run):
    return run["startTime"]


def test_S0_06_S0_07_replicas_start_although_another_is_slow(slow):
    """Replicas print while the job is still PENDING."""
    assert all("environment {" in log for log in slow.waiting)
    assert slow.meanwhile["customJob"]["state"] == "JOB_STATE_PENDING"
    states = [replica["state"] for replica in slow.meanwhile["replicas"]]
    assert states == ["STARTING", "RUNNING", "RUNNING"]


def test_S0_09_a_worker_that_comes_before_its_chief_waits_for_it_undisturbed(slow):
    assert all("waits for" in log for log in slow.waiting)
    assert [len(replica["runs"]) for replica in slow.running["replicas"]] == [1, 1, 1]


def test_S0_08_running_is_when_the_last_replica_is_up(slow):
    assert slow.observed.states() == ["QUEUED", "PENDING", "RUNNING", "SUCCEEDED"]
    assert "startTime" not in slow.meanwhile["customJob"]
    last = max(started(replica["runs"][0]) for replica in slow.running["replicas"])
    assert slow.running["customJob"]["startTime"] >= last


def test_S0_01_S0_36_without_room_a_job_is_queued_and_says_why(slow):
    """The reason is capacity, not quota: what is needed, and how many there are."""
    blocked = slow.blocked_meanwhile
    assert blocked["customJob"]["state"] == "JOB_STATE_QUEUED" and "quota" not in blocked["reason"]
    assert "8" in blocked["reason"] and "H100" in blocked["reason"]
    assert slow.blocked.states() == ["QUEUED", "PENDING", "RUNNING", "SUCCEEDED"]


def test_S3_19_a_submitted_job_is_provisioned(slow):
    assert slow.observed.states()[:2] == ["QUEUED", "PENDING"]


@pytest.fixture(scope="module")
def wide(yard, slow):
    """A job with as many replicas as the hosts have CPUs, when nothing else runs."""
    [row] = yard.query("SELECT SUM(cpus) AS cpus FROM agents_host WHERE retired_at IS NULL")
    count = min(int(row["cpus"]), 8)
    pools = [["cluster-member"], {"command": ["cluster-member"], "replicas": count - 1}]
    return ObservedJob(yard, *pools, name="wide").over("SUCCEEDED")


def test_S0_03_on_free_hosts_queued_is_short(wide):
    """The first look at the queue places the job: nothing was ever said of waiting."""
    assert wide.states() == ["QUEUED", "PENDING", "RUNNING", "SUCCEEDED"]
    kinds = {event["kind"] for event in wide.events()}
    assert "wait" not in kinds and "state" in kinds, kinds
    assert 0 <= wide.waited() < 10


def test_S0_05_all_replicas_start_within_a_short_time(wide):
    """One decision places all of them, and none waits for another to start."""
    runs = wide.yard.query(
        f"SELECT created_at, claimed_at, started_at FROM jobs_run WHERE job_id = {wide.id}"
    )
    assert len(runs) >= 4 and len({run["created_at"] for run in runs}) == 1
    starts = [run["started_at"] for run in runs]
    assert max(run["claimed_at"] for run in runs) - min(starts) < 10
    assert max(starts) - min(starts) < 10


class Ended:
    """Jobs that never end by themselves: one is cancelled, one runs into its timeout, one deadlocks and stays."""

    def __init__(self, yard):
        quiet = ["sleep", "1000"]
        self.cancelled = ObservedJob(
            yard, {"command": quiet, "gpus": 1}, quiet, name="cancelled", web_access=True
        ).running()
        self.timeout = ObservedJob(yard, STAYS, name="timeout", timeout_s=2)
        self.with_shell = self.cancelled.job
        self.log = self.cancelled.log()
        with yard.client.shell(self.cancelled.run()["id"]) as shell:
            shell.wait_until_open()
            shell.say("echo looked $((40+2))", "looked 42")
            shell.say("echo parents $(ps -o args= -p $PPID | grep -c sleep)", "parents 0")
        self.timeout.over("CANCELLED")
        yard.client.cancel(self.cancelled.id)
        self.asked = self.cancelled.job
        self.cancelled.over("CANCELLED")


@pytest.fixture(scope="module")
def ended(yard, wide):
    return Ended(yard)


def test_S3_29_a_shell_is_beside_the_training_and_does_not_disturb_it(ended):
    [run] = ended.cancelled.runs()
    assert run["number"] == 0 and run["attempt"] == 1


def test_S3_22_nothing_is_added_to_the_log_of_a_quiet_job(ended):
    assert ended.log == ended.cancelled.log() == ""


def test_S3_27_one_shell_for_each_node(ended):
    assert set(ended.with_shell["webAccessUris"]) == {"workerpool0-0", "workerpool1-0"}


def test_S3_37_a_cancelled_job_leaves_nothing(ended, yard):
    assert ended.asked["state"] in ("JOB_STATE_CANCELLING", "JOB_STATE_CANCELLED")
    assert ended.cancelled.states() == ["QUEUED", "PENDING", "RUNNING", "CANCELLING", "CANCELLED"]
    assert ended.cancelled.error == {"code": GRPC_CANCELLED, "message": "CANCELED"}
    assert ended.cancelled.moves()[-1]["actor"] == "ada"
    assert nothing_lives(yard, ended.cancelled.id)


def test_S3_38_a_timeout_cancels_the_job_and_says_so(ended, yard):
    error = ended.timeout.error
    assert error["code"] == GRPC_CANCELLED and "timeout of 2s" in error["message"]
    assert nothing_lives(yard, ended.timeout.id)
    [row] = yard.query(f"SELECT started_at, ended_at FROM jobs_job WHERE id = {ended.timeout.id}")
    assert row["ended_at"] - row["started_at"] >= 2


class Stockout:
    """Every GPU is taken. One job may not wait for long; another may, and capacity is free in time."""

    def __init__(self, yard):
        command = ["replica", "--until", "~/finish-stockout", "--every", "0.5"]
        holder = ObservedJob(
            yard, {"command": command, "gpus": 8}, {"command": command, "gpus": 8, "replicas": 2}, name="all"
        ).running()
        one = {"command": ["replica", "--seconds", "0.1"], "gpus": 1}
        flexible = {"strategy": "FLEX_START", "maxWaitDuration": "1s"}
        self.never = ObservedJob(yard, one, name="never", scheduling=flexible)
        self.never.over("FAILED")
        self.in_time = ObservedJob(yard, one, name="in time", scheduling={"maxWaitDuration": "4s"})
        wait_for(lambda: self.in_time.ours["retries"] == 1, "its first retry")
        finish(yard, "finish-stockout")
        self.in_time.over("SUCCEEDED")
        holder.over("SUCCEEDED")


@pytest.fixture(scope="module")
def stockout(yard, ended):
    return Stockout(yard)


def test_S0_35_S0_37_no_room_for_too_long_fails_after_three_retries(stockout):
    observed = stockout.never
    assert observed.error == {
        "code": GRPC_EXHAUSTED,
        "message": "Resources are insufficient in region: default. "
        "Try a different region or use a different accelerator.",
    }
    assert observed.ours["retries"] == 3 and observed.runs() == []
    said = observed.job["jobSpec"]["scheduling"]
    assert (said["strategy"], said["maxWaitDuration"]) == ("FLEX_START", "1s")
    assert [move["to_state"] for move in observed.moves()] == ["QUEUED"] * 4 + ["FAILED"]


def test_S1_06_S2_05_the_page_says_it_in_the_readers_language(stockout):
    """As S0-35, the Portuguese text ends with the advice that the service gives now."""
    portuguese = (
        "Há recursos insuficientes na região: default. Tente uma região diferente ou use um acelerador"
    )
    korean = "default 리전의 리소스가 부족합니다. 다른 리전을 사용하거나 다른 가속기를 사용하세요."
    assert portuguese in stockout.never.page_in("pt-BR") and korean in stockout.never.page_in("ko")


def test_S0_37_room_that_comes_in_time_is_used(stockout):
    assert stockout.in_time.ours["retries"] >= 1
    assert [run["attempt"] for run in stockout.in_time.runs()] == [stockout.in_time.ours["attempt"]]


@pytest.fixture(scope="module")
def broken(yard, stockout):
    """Foreign processes hold every port of every host, so that no replica can be started anywhere."""
    low, high = "23000", "23999"
    foreign_processes = [_foreign_process(host, low, high) for host in yard.fleet]
    try:
        return ObservedJob(yard, STAYS, name="broken").over("FAILED")
    finally:
        for process in foreign_processes:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


def _foreign_process(host, low, high):
    words = [*host.as_user("python3", "-c", TAKE_ALL_PORTS, low, high)]
    taken = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert taken.stdout.readline() == "taken\n"
    return taken


def test_S0_38_S0_39_a_job_that_cannot_be_started_is_tried_three_times(broken):
    assert broken.error == {
        "code": GRPC_INTERNAL,
        "message": "Internal error occurred for the current attempt",
    }
    assert [(run["attempt"], run["number"]) for run in broken.runs()] == [(1, 0), (2, 0), (3, 0)]
    assert "port" in broken.moves()[-1]["cause"]


def test_S1_07_the_portuguese_page_has_the_english_text(broken):
    page = broken.page_in("pt-BR")
    assert '<html lang="pt-br"' in page and "Internal error occurred for the current attempt" in page
