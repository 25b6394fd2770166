"""Hosts and networks fail under running jobs. Silence is never failure, and nothing is freed without evidence."""

from __future__ import annotations

import hashlib
import time

import pytest

from tests.flows.running_jobs import LongJob
from tests.harness.product.product import where_is
from tests.harness.wait_and_processes import wait_for

pytestmark = pytest.mark.needs_namespaces


@pytest.fixture(autouse=True)
def healed(yard):
    """Undo what a test did to the hosts, so that the next test finds all links up."""
    yield
    for host in yard.fleet:
        host.restore()
        host.heal()
        host.free_disk()
        host.unskew()


@pytest.mark.slow
def test_cuts_in_the_middle_of_a_stream_lose_nothing(yard, client):
    """Failure mode 15: the cable is cut again and again while 24 MB are on their way."""
    job = LongJob(yard, name="cut", options=["--mb", "24"]).running()
    host = job.host()
    with client.log_socket(job.id) as viewer:
        for _ in range(4):
            host.cut()
            time.sleep(0.4)
            host.restore()
            viewer.read_on("more of the log after the cable was out")
        job.succeeded()
        viewer.read_until(lambda seen: seen.text().endswith(b" lines\n"), "the last line")
    yard.check()
    assert viewer.text() == client.log(job.id)
    assert len(job.starts()) == 1


def test_an_unreachable_host_does_not_fail_its_jobs(yard, client):
    """Failure mode 16: a half-open link. The page says *unreachable since*; GPUs stay claimed; then all goes on.

    A job that is cancelled meanwhile ends although a replica still prints there, and says so. The replica is stopped
    when the host answers.
    """
    job = LongJob(yard, gpus=7, name="unreachable").running()
    beside = LongJob(yard, gpus=1, name="ends beside it").running()
    host = job.host()
    assert beside.host() == host, "a host is filled before the next is begun"
    host.blackhole()
    yard.wait_for_hosts("unreachable", host.name)
    wait_for(lambda: "UNREACHABLE" in job.flags(), "the job to say that it is unreachable", dump=yard.tail)
    others = [LongJob(yard, gpus=8, name="elsewhere").running() for _ in range(2)]
    waiting = LongJob(yard, gpus=8, name="waits for the unreachable one")
    wait_for(lambda: client.state(waiting.id) == "QUEUED", "the third to wait")
    assert client.state(job.id) == "RUNNING"
    assert not job.run()["released_at"] and not job.run()["ended_at"]
    client.cancel(beside.id)
    client.wait(beside.id, "CANCELLED")
    left = beside.run()
    assert left["silent_since"] and not left["released_at"]
    over_at = time.time()
    wait_for(
        lambda: [line for line in yard.ledger(beside.id) if line["wall"] > over_at],
        "what is cut off to print on, after its job's end",
    )
    host.heal()
    yard.wait_for_hosts("up", host.name)
    job.grows(what="the log to go on when the host answers")
    wait_for(lambda: "UNREACHABLE" not in job.flags(), "the flag to vanish")
    for each in (*others, job):
        each.succeeded()
    waiting.running().succeeded()
    yard.check()
    assert [len(each.starts()) for each in (job, *others, waiting)] == [1, 1, 1, 1]


def test_a_reboot_proves_runs_over_and_they_start_again(yard, client):
    """Failure mode 18. The new boot id shows that the old run is dead: its replica starts again, its sibling not."""
    job = LongJob(yard, replicas=2, name="rebooted").running()
    for replica in ("workerpool0-0", "workerpool1-0"):
        client.wait_for_log(job.id, "line 0 at", replica)
    first = job.run("workerpool1-0")
    job.host("workerpool1-0").reboot(hard=True)
    wait_for(
        lambda: job.run("workerpool1-0")["id"] != first["id"], "the replica's second run", dump=yard.tail
    )
    wait_for(lambda: job.run("workerpool1-0")["phase"] == "running", "it to run", dump=yard.tail)
    [old] = [run for run in yard.runs(job.id) if run["id"] == first["id"]]
    assert (old["why"], old["exit_code"]) == ("reboot", None)
    job.grows("workerpool1-0")
    job.succeeded()
    yard.check()
    assert sorted(job.starts()) == [
        f"{job.id}-workerpool{run}" for run in ("0-0-a1-r0", "1-0-a1-r0", "1-0-a1-r1")
    ]


@pytest.mark.slow
def test_a_full_disk_ends_in_one_state_and_a_true_log(yard, client):
    """Failure mode 24: no byte can be written while the replica prints. Its end is reported all the same, and a job
    that would be placed on this host, which looks free, begins elsewhere.
    """
    job = LongJob(yard, gpus=8, name="disk full").running()
    host = job.host()
    client.wait_for_log(job.id, "line 5")
    host.fill_disk()
    yard.processes.kill("dispatcher")
    job.finish()
    client.wait(job.id, "SUCCEEDED", "FAILED")
    others = [LongJob(yard, gpus=8, name=f"beside {n}") for n in range(3)]
    theirs = ", ".join(str(each.id) for each in others)  # the product may have stood through other tests
    refused = f"SELECT refusal, host_id FROM jobs_run WHERE refusal <> '' AND job_id IN ({theirs})"
    [told] = wait_for(lambda: yard.query(refused), "the full host to refuse", dump=yard.tail)
    assert told == {"refusal": "disk_full", "host_id": job.run()["host_id"]}
    yard.wait_for_hosts("unusable", host.name)
    two_elsewhere = ["QUEUED", "RUNNING", "RUNNING"]
    wait_for(
        lambda: sorted(client.state(each.id) for each in others) == two_elsewhere,
        "two to run elsewhere and one to wait",
        dump=yard.tail,
    )
    host.free_disk()
    yard.command("host", "add", *where_is(host), "--accept-key", host.fingerprint())
    yard.wait_for_hosts("up", host.name)
    for each in others:
        each.running()
    for each in (job, *others):
        each.finish()
        client.wait(each.id)
    yard.check()
    assert [len(each.starts()) for each in (job, *others)] == [1, 1, 1, 1]


@pytest.mark.slow
def test_a_changed_host_key_stops_all_traffic(yard, client):
    """Failure mode 33. Both fingerprints are shown, no login is tried, the job goes on; then a named person accepts."""
    job = LongJob(yard, name="key changed").running()
    host = job.host()
    old = host.fingerprint()
    host.new_host_key()
    host.cut()
    yard.wait_for_hosts("unreachable", host.name)
    before = logins_tried(host)
    assert before
    host.restore()
    yard.wait_for_hosts("blocked", host.name)
    [row] = yard.query(f"SELECT last_error FROM agents_host WHERE name = '{host.name}'")
    assert old in row["last_error"] and host.fingerprint() in row["last_error"]
    assert client.state(job.id) == "RUNNING"
    assert logins_tried(host) == before
    where = where_is(host)
    refused = yard.command("host", "add", *where, "--accept-first-key", check=False)
    assert refused.returncode == 1 and "changed" in refused.stderr
    assert logins_tried(host) == before
    yard.command("host", "add", *where, "--accept-key", host.fingerprint())
    yard.wait_for_hosts("up", host.name)
    job.grows(what="the log to go on under the new key")
    job.succeeded()
    yard.check()


def logins_tried(host):
    """Count the logins that came as far as naming a user, accepted or not."""
    return sum(host.sshd_log().count(words) for words in ("publickey", "authenticating user"))


@pytest.mark.slow
def test_sshd_limits_slow_the_links_and_break_nothing(yard, client):
    """Failure modes 35 and 36: two sessions a connection, two handshakes at a time, and many connections at once."""
    job = LongJob(yard, name="limits", web_access=True).running()
    host = job.host()
    host.sshd_config("MaxSessions 2\nMaxStartups 2:100:2")
    yard.processes.kill("dispatcher")
    run_id = job.run()["id"]
    shells = [client.shell(run_id) for _ in range(5)]
    try:
        for number, shell in enumerate(shells):
            shell.wait_until_open().say(f"echo shell-$(({number}+10))", f"shell-{number + 10}")
    finally:
        for shell in shells:
            shell.close()
    job.grows(what="the log to go on with few sessions")
    job.succeeded()
    host.sshd_config("")
    yard.check()


BAD_LINKS = ({"rate": "256kbit"}, {"delay_ms": 150}, {"loss_percent": 10})
ROWS, TYPED = (
    "".join(f"row {n:06}\n" for n in range(1500)),
    "".join(f"typed {n:03}, " * 5 + "\n" for n in range(60)),
)


@pytest.fixture
def bad_links(hosts):
    """One link is slow, one takes 300 ms there and back, one loses a tenth each way; and no host has the runner yet."""
    for host, fault in zip(hosts, BAD_LINKS, strict=True):
        host.run_inside("rm", "-r", f"{host.home}/.trainyard/bin")
        host.shape(**fault)
    yield
    for host in hosts:
        host.shape()


@pytest.mark.slow
def test_links_with_low_bandwidth_latency_or_loss_are_only_slow(yard, client, bad_links):
    """Failure mode 17: hosts are reached and start runs, 5 MB of log come from each, and shells work beside them."""
    yard.processes.kill("dispatcher")
    options = ["--mb", "5", "--every", "0.2"]
    job = LongJob(yard, replicas=3, name="bad links", options=options, web_access=True).running()
    for replica in ("workerpool0-0", "workerpool1-0", "workerpool1-1"):
        with client.shell(job.run(replica)["id"]) as shell:
            work_in(shell.wait_until_open())
    for run in yard.runs(job.id):
        stored = f"SELECT log_stored FROM jobs_run WHERE id = '{run['id']}' AND log_stored > 5000000"
        wait_for(lambda stored=stored: yard.query(stored), "5 MB of a log", timeout=300, dump=yard.tail)
    job.succeeded()
    yard.check()
    assert len(job.starts()) == 3


def work_in(shell):
    """Check that input and output arrive whole and in order, and that ^C works."""
    shell.say("stty -echo; echo ready-$((6*7))", "ready-42")
    shell.say("seq -f 'row %06g' 0 1499; echo shown-$((6*7))", "shown-42")
    assert ROWS.encode() in shell.seen
    shell.say("sh -c 'echo takes-$((6*7)); exec cat > typed'", "takes-42")
    shell.type(TYPED + "\x04")
    shell.say("sha256sum < typed", hashlib.sha256(TYPED.encode()).hexdigest())
    shell.say("sh -c 'echo waits-$((6*7)); exec sleep 900'", "waits-42")
    shell.type("\x03")
    shell.say("echo back-$((6*7))", "back-42")


@pytest.mark.slow
def test_a_wrong_clock_changes_no_order_and_no_outcome(yard, client):
    """Failure mode 30: the host's clock is a day slow, then jumps two days ahead during the run."""
    for each in yard.fleet:
        each.skew(-86400)
    yard.processes.kill("dispatcher")
    job = LongJob(yard, name="skewed", timeout_s=3600).running()
    offset = f"SELECT clock_offset_s FROM agents_host WHERE name = '{job.host().name}'"
    assert abs(yard.query(offset)[0]["clock_offset_s"] + 86400) < 3600, "the offset is recorded"
    for each in yard.fleet:
        each.skew(86400)
    job.grows(what="the log to go on after the clock jumped")
    job.succeeded()
    for each in yard.fleet:
        each.unskew()
    yard.check()
    rows = yard.query(
        f"SELECT at, to_state FROM jobs_transition WHERE job_id = {job.id} AND subject = 'job' ORDER BY id"
    )
    times = [row["at"] for row in rows]
    assert times == sorted(times) and all(abs(each - time.time()) < 3600 for each in times)
    assert [row["to_state"] for row in rows] == ["QUEUED", "PENDING", "RUNNING", "SUCCEEDED"]
    assert 0 <= job.run()["seconds"] < 3600, "by the monotonic clock"
