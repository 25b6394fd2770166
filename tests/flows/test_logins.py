"""Two projects on the same real hosts, each under a login of its own: a job cannot read what the other project has."""

from __future__ import annotations

import pytest

from console.presenters.hosts.host_logins import MAKE
from tests.harness.product import Client, job_spec
from tests.harness.wait_and_processes import wait_for

pytestmark = pytest.mark.needs_namespaces
P = "workerpool0-0"
OURS, THEIRS = "train-default", "train-vision"
VICTIM = (
    "umask 022; echo printed-secret; echo file-secret > ~/notes; echo file-secret > secret; "
    "while :; do echo beat; sleep 0.2; done"
)
# What a job's own program may try. The words are put together here, so that it does not find itself.
SPY = """
import os, stat, subprocess
words = [w + "-secret" for w in ("env", "printed", "file")]
def look(path):
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return
        with open(path, "rb") as file:
            found = file.read(1 << 20)
    except OSError:
        return
    for word in words:
        if word.encode() in found and str(os.getpid()) not in path:
            print("FOUND", word, flush=True)
for pid in filter(str.isdigit, os.listdir("/proc")):
    if int(pid) != os.getpid():
        look("/proc/%s/environ" % pid)
for top in ("/home/train-default", "/home/train-vision", "/home/gpu", "/tmp", "/var/tmp", "/dev/shm"):
    for folder, _, names in os.walk(top):
        for name in names:
            look(os.path.join(folder, name))
users = {int(p): os.stat("/proc/" + p).st_uid for p in os.listdir("/proc") if p.isdigit()}
others = [pid for pid, uid in users.items() if uid not in (0, os.getuid())]
for pid in others:
    try:
        os.kill(pid, 0)
        print("MAY KILL", pid, flush=True)
    except PermissionError:
        pass
print("OTHERS", len(others), flush=True)
print("SPY IS DONE AS", subprocess.check_output(["id", "-un"]).decode(), flush=True)
"""


@pytest.fixture
def split(yard):
    """Two hosts with a login for each of two projects. The third host takes no jobs."""
    first, second, third = yard.fleet
    try:
        yard.command("project", "add", "vision")
    except AssertionError as problem:
        assert "is taken" in str(problem), problem
    make = MAKE.format(users=f"{OURS} {THEIRS}", key=yard.key.strip())
    for host in (first, second):
        # As an admin of the machine would: the command of the host's page, as root; twice does no harm.
        host.run_inside("sh", "-c", make)
        host.run_inside("sh", "-c", make)
        yard.command("host", "logins", host.name, "--template", "train-{project}")
    yard.command("host", "cordon", third.name)
    wait_for(lambda: statuses(yard) == ["up"] * 4, "the logins to be up", dump=yard.tail)
    yield first, second
    yard.command("host", "uncordon", third.name)
    for host in (first, second):
        yard.command("host", "uncordon", host.name)
        wait_for(lambda host=host: one_login(yard, host), "no run to hold a login", dump=yard.tail)


def one_login(yard, host):
    return yard.command("host", "logins", host.name, "--one", check=False).returncode == 0


def statuses(yard):
    rows = yard.query("SELECT status FROM agents_host WHERE machine_id IS NOT NULL AND retired_at IS NULL")
    return [row["status"] for row in rows]


def submit(yard, project, command, env=None, **changes):
    client = Client(yard.client.url, yard.client.token, project=project)
    job = client.submit(job_spec({"command": command, "env": env or {}}, **changes))
    yard.accepted.append(job)
    return client, job


def login_of(yard, job):
    """The login and the host of the job's newest run."""
    hosts = {row["id"]: row for row in yard.query('SELECT id, name, "user" FROM agents_host')}
    row = hosts[yard.runs(job)[-1]["host_id"]]
    return row["user"], row["name"]


def spy(yard, project):
    client, job = submit(yard, project, ["python3", "-c", SPY], name="spy")
    client.wait_for_log(job, "SPY IS DONE AS")
    client.wait(job, "SUCCEEDED")
    return job, client.log(job).decode()


def test_a_job_reads_nothing_of_another_project_on_the_same_host(yard, split):
    secret = {"TOKEN": "env-secret"}
    client, victim = submit(yard, "default", ["sh", "-c", VICTIM], secret, name="victim", web_access=True)
    client.wait(victim, "RUNNING")
    client.wait_for_log(victim, "beat")
    login, host = login_of(yard, victim)
    assert login == OURS
    other = next(each for each in split if each.name != host)
    yard.command("host", "cordon", other.name)
    # A program of the same login finds everything: so the spy can see.
    sibling, found = spy(yard, "default")
    assert login_of(yard, sibling) == (OURS, host)
    for word in ("env", "printed", "file"):
        assert f"FOUND {word}-secret" in found, found
    stranger, found = spy(yard, "vision")
    assert login_of(yard, stranger) == (THEIRS, host)
    assert f"SPY IS DONE AS {THEIRS}" in found
    assert "FOUND" not in found and "MAY KILL" not in found, found
    assert "OTHERS 0" not in found, "the victim's processes are there, and not to be touched"
    with client.shell(yard.runs(victim)[-1]["id"]) as shell:
        shell.wait_until_open()
        shell.say("id -un; echo over$((1+1))", "over2")
        assert OURS in shell.seen.decode()
    client.cancel(victim)
    client.wait(victim, "CANCELLED")
    yard.command("host", "uncordon", other.name)


@pytest.mark.slow
def test_a_job_is_adopted_moved_and_stopped_under_its_login(yard, split):
    client, job = submit(yard, "vision", ["sh", "-c", "while :; do echo beat; sleep 0.2; done"], name="long")
    client.wait(job, "RUNNING")
    client.wait_for_log(job, "beat")
    login, host = login_of(yard, job)
    assert login == THEIRS
    yard.processes.kill("dispatcher")
    before = yard.runs(job)[-1]["log_stored"]
    wait_for(lambda: yard.runs(job)[-1]["log_stored"] > before + 20, "its log to grow", dump=yard.tail)
    assert len(yard.runs(job)) == 1, "the run was adopted, not started again"
    here = next(each for each in split if each.name == host)
    yard.command("host", "drain", here.name)
    wait_for(
        lambda: login_of(yard, job)[1] != host and yard.runs(job)[-1]["phase"] == "running",
        "the replica to run on the other host",
        dump=yard.tail,
    )
    assert login_of(yard, job)[0] == THEIRS
    wait_for(lambda: "\tdrained\t" in yard.command("host", "list").stdout, "the drain to end", dump=yard.tail)
    client.cancel(job)
    client.wait(job, "CANCELLED")
    for each in split:
        left = each.run_inside("sh", "-c", f"pgrep -u {THEIRS} -f 'echo beat' || true")
        assert not left.stdout.strip(), left.stdout
