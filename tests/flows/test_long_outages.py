"""Something is missing for long: the console, a disk that answers, the right to log in, the person who submitted."""

from __future__ import annotations

import signal
import subprocess

import pytest
from websockets.exceptions import ConnectionClosed

from tests.flows.running_jobs import LongJob, replica_process
from tests.flows.test_end_to_end import Browser
from tests.harness.hosts.namespaced import HERE
from tests.harness.product import Client, job_spec
from tests.harness.product.client import Refused
from tests.harness.product.product import PASSWORD, QUICK
from tests.harness.wait_and_processes import PROMISED_S, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.needs_namespaces]
HANGS = "/mnt/hangs"


def test_a_timeout_is_kept_by_the_host_while_the_console_is_down(yard, client):
    """G14: by the host's monotonic clock, whatever its wall clock does meanwhile."""
    for host in yard.fleet:
        host.skew(-86400)
    yard.processes.kill("dispatcher")
    job = LongJob(yard, name="times out alone", timeout_s=6).running()
    host, run = job.host(), job.run()["id"]
    yard.kill()
    for each in yard.fleet:
        each.skew(86400)
    wait_for(lambda: not host.processes(run), "the host to end the run by itself", timeout=180)
    for each in yard.fleet:
        each.unskew()
    yard.start().wait_for_hosts("up")
    client.wait(job.id, "CANCELLED")
    error = client.job(job.id)["error"]
    assert "timeout of 6s" in error["message"]
    [row] = yard.query(f"SELECT why, seconds FROM jobs_run WHERE id = '{run}'")
    assert row["why"] == "timeout" and 6 <= row["seconds"] < 6 + int(QUICK["GRACE_S"]) + PROMISED_S
    yard.check()


def test_workers_are_shut_down_cold_again_and_again(yard, client):
    """Failure mode 49: SIGQUIT may end a worker between a commit and the hint after it."""
    jobs = []
    for _ in range(3):
        old = {role: yard.processes.signal(role, signal.SIGQUIT) for role in ("worker", "dispatcher")}
        assert all(old.values()), "each was there to be stopped"
        jobs.append(yard.submit(job_spec(["replica", "--seconds", "0.2"], name="cold")))
        for role, pids in old.items():
            yard.processes.wait_for_new(role, pids)
    for job_id in jobs:
        client.wait(job_id, "SUCCEEDED", timeout=240)
    yard.check()


@pytest.fixture
def hanging(hosts):
    """A disk on the first host that does not answer; in the end, processes that wait for it are released."""
    host = hosts[0]
    program = (HERE / "stuck_disk.py").read_text()
    words = [*host.inside("python3", "-c", program, HANGS)]
    daemon = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        assert daemon.stdout.readline() == "mounted\n"
        yield host, daemon
    finally:
        end(host)
        daemon.wait(60)
        daemon.stdout.close()


def end(host):
    """Kill the daemon, which is found by its directory; the nsenter that started it ends with it."""
    for pid, command in host.processes(HANGS):
        if "stuck" in command and "python3" in command.split()[0]:
            host.run_inside("kill", "-9", str(pid), check=False)


def test_a_hanging_disk_blocks_its_job_and_no_other(yard, client, hanging):
    """Failure modes 22 and 39: a process that cannot be killed keeps its run open and its GPU claimed, and is named.

    The host's runner goes on meanwhile: it never touches a path of the user by itself.
    """
    host, _ = hanging
    stuck = yard.submit(job_spec({"command": ["cat", f"{HANGS}/data"], "gpus": 1}, name="stuck"))
    client.wait(stuck, "RUNNING")
    [run] = yard.runs(stuck)
    if run["host_id"] != host_id(yard, host):
        pytest.fail("the first host was not filled first")
    client.cancel(stuck)
    flags = f"SELECT flags FROM jobs_job WHERE id = {stuck}"
    flag = wait_for(
        lambda: next((one for one in yard.query(flags)[0]["flags"] if one["flag"] == "STUCK"), None),
        "the job to say what cannot be killed",
        dump=yard.tail,
    )
    assert "workerpool0-0" in flag["text"] and host.name in flag["text"]
    assert client.state(stuck) == "CANCELLING"
    others = yard.submit(
        job_spec(
            {"command": ["replica", "--seconds", "0.3"], "gpus": 7},
            {"command": ["replica", "--seconds", "60"], "gpus": 7, "replicas": 2},
            name="beside it",
        )
    )
    client.wait(others, "SUCCEEDED")
    held = yard.query(f"SELECT released_at FROM jobs_run WHERE job_id = {stuck}")
    assert [row["released_at"] for row in held] == [None]
    assert {each["host_id"] for each in yard.runs(others)} >= {run["host_id"]}
    end(host)
    client.wait(stuck, "CANCELLED")
    yard.check()


def host_id(yard, host):
    return yard.query(f"SELECT id FROM agents_host WHERE name = '{host.name}'")[0]["id"]


def test_a_host_with_a_revoked_login_is_dialled_rarely_and_loses_nothing(yard, client):
    """Failure mode 34: the login is refused, jobs go on, sshd is tried rarely; accepted again, all goes on."""
    job = LongJob(yard, name="no way in").running()
    host = job.host()
    host.revoke(yard.key.strip())
    tries_before = refusals(host)
    host.restart_sshd()
    for pid, command in host.processes("sshd: gpu"):
        if command.startswith("sshd"):
            host.run_inside("kill", "-9", str(pid), check=False)
    yard.wait_for_hosts("auth_failed", host.name)
    assert replica_process(host, job.run()["id"])
    browser = Browser(yard.url)
    browser.send("/login", "/login", username="ada", password=PASSWORD, next="")
    page = f"/hosts/{host_id(yard, host)}/"
    assert "refused" in browser.get(page) or "authorized_keys" in browser.get(page)
    tried = refusals(host) - tries_before
    assert 1 <= tried <= 4, f"{tried} tries within seconds"
    host.authorize(yard.key.strip())
    browser.send(page, f"{page}check")
    yard.wait_for_hosts("up", host.name)
    job.succeeded()
    yard.check()


def refusals(host):
    return host.sshd_log().count("Connection closed by authenticating user")


def test_the_job_of_a_disabled_person_keeps_running(yard, client):
    """Failure mode 41: the job belongs to its project; shells and tokens end at once; history keeps the name."""
    add = ("user", "add", "bob", "--password-stdin")
    member = ("member", "set", "bob", "submitter")
    _, _, token = yard.commands(add, member, ("token", "create", "bob"), stdin=PASSWORD + "\n")
    bobs = Client(yard.url, token.strip())
    document = job_spec(["replica", "--until", "~/finish-bob"], name="bob's", web_access=True)
    job_id = bobs.submit(document)
    yard.accepted.append(job_id)
    bobs.wait(job_id, "RUNNING")
    [run] = yard.runs(job_id)
    with bobs.shell(run["id"]) as shell:
        shell.wait_until_open()
        yard.command("user", "disable", "bob")
        with pytest.raises(ConnectionClosed):
            while True:
                shell.receive(30)
    with pytest.raises(Refused) as refused:
        bobs.state(job_id)
    assert refused.value.status == 401, "his token ends with him"
    assert client.state(job_id) == "RUNNING"
    for host in yard.fleet:
        host.write(f"{host.home}/finish-bob", "")
    client.wait(job_id, "SUCCEEDED")
    first, *_ = yard.query(f"SELECT actor FROM jobs_transition WHERE job_id = {job_id} ORDER BY id")
    [session] = yard.query(f"SELECT user_name, closed_at FROM jobs_shellsession WHERE run_id = '{run['id']}'")
    assert first["actor"] == session["user_name"] == "bob" and session["closed_at"]
    yard.check()
