"""Any process of the product dies at any moment: nothing is lost or doubled, and replicas do not notice."""

from __future__ import annotations

import shutil
import signal
import time

import pytest

from tests.flows.running_jobs import LongJob, replica_process
from tests.harness.product import job_spec
from tests.harness.product.product import QUICK, ROOT
from tests.harness.wait_and_processes import PROMISED_S, command_of, wait_for


def test_each_process_is_killed_while_a_job_runs(yard, client):
    """Failure modes 1 to 5, 9 and 10, and all at once: three starts in all, and the viewer misses no byte."""
    job = LongJob(yard, replicas=3, name="killed around")
    with client.log_socket(job.id) as viewer:
        job.running()
        viewer.read_until(lambda seen: b"line 0 at" in seen.text(), "the first line")
        for role in ("web", "worker", "dispatcher", "beat", "broker"):
            old = yard.processes.kill(role)
            yard.processes.wait_for_new(role, old)
            size = len(viewer.text())
            viewer.read_until(
                lambda seen, size=size: len(seen.text()) > size, f"a line after the {role} was killed"
            )
        yard.kill()
        assert not yard.processes.all()
        yard.start()
        viewer.read_on("a line after the power cut")
        job.succeeded()
        viewer.read_until(lambda seen: b"done after" in seen.text(), "the last line")
    yard.check()
    assert viewer.text() == client.log(job.id)
    assert len(job.starts()) == 3


@pytest.mark.slow
def test_a_submission_is_neither_lost_nor_doubled(yard, client):
    """Failure mode 1. Each key is sent twice, while the web process and the worker are killed."""
    ids = {}
    for number in range(24):
        if number % 8 == 4:
            yard.processes.kill("web" if number != 12 else "worker")
        document = job_spec(["true"], name=f"keyed {number}")
        for _ in range(2):
            ids.setdefault(number, set()).add(client.submit(document, key=f"key-{number}", patience=60))
    assert all(len(each) == 1 for each in ids.values())
    yard.accepted += [job_id for each in ids.values() for job_id in each]
    yard.check()
    [row] = yard.query("SELECT count(*) AS n FROM jobs_job WHERE display_name LIKE 'keyed %'")
    assert row["n"] == 24


@pytest.mark.needs_namespaces  # its daemons carry no mark of their run
@pytest.mark.slow
def test_a_tree_that_ignores_sigterm_ends_with_its_job(yard, client):
    """Failure modes 20 and 21: daemons in sessions of their own that ignore SIGTERM and have an empty environment."""
    job_id = yard.submit(
        job_spec(["replica", "--ignore-term", "--daemons", "5", "--seconds", "300"], name="stubborn")
    )
    client.wait(job_id, "RUNNING")
    client.wait_for_log(job_id, "line 3")
    assert sum(len(host.processes(f"daemon-of-{job_id}-")) for host in yard.fleet) == 5
    asked = time.monotonic()
    client.cancel(job_id)
    assert client.state(job_id) in ("CANCELLING", "CANCELLED")
    assert time.monotonic() - asked < PROMISED_S, "a cancel is answered at once"
    client.wait(job_id, "CANCELLED", timeout=int(QUICK["GRACE_S"]) + 2 * PROMISED_S)
    left = [each for host in yard.fleet for each in host.processes(f"{job_id}-")]
    # Its keepers report the end, and end then.
    assert all(command.startswith("trainyard-keeper ") for _pid, command in left), left
    wait_for(
        lambda: not any(host.processes(f"{job_id}-") for host in yard.fleet), "its keepers to end", PROMISED_S
    )
    yard.check()


def test_the_runner_dies_and_replicas_do_not(yard, client):
    """Failure mode 19. The exit code that the replica chooses afterwards is the one that is reported."""
    job_id = yard.submit(job_spec(["replica", "--until", "~/runner-died", "--exit", "7"], name="runner dies"))
    client.wait(job_id, "RUNNING")
    [run] = yard.runs(job_id)
    host = next(host for host in yard.fleet if replica_process(host, run["id"]))
    serving = [pid for pid in host.pids() if " serve" in command_on(host, pid)]
    host.run_inside("kill", f"-{signal.SIGKILL.value}", *serving)
    size = len(client.log(job_id))
    wait_for(lambda: len(client.log(job_id)) > size, "the log to go on under a new runner", dump=yard.tail)
    host.write(f"{host.home}/runner-died", "")
    client.wait(job_id, "FAILED")
    text = "The replica workerpool0-0 exited with a non-zero status of 7. Termination reason: Error."
    assert client.job(job_id)["error"]["message"] == text
    yard.check()


def command_on(host, pid):
    return command_of(pid, host.proc)


@pytest.fixture
def changed_tree(tmp_path):
    """Copy the product and add one line to its runner, so that the runner has another name (hash) on hosts."""
    for name in ("agents", "console", "jobs", "templates", "static"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "node_modules").symlink_to(ROOT / "node_modules")
    with open(tmp_path / "agents" / "runner" / "serve.py", "a") as runner:
        runner.write("\n# A later version.\n")
    return tmp_path


def runner_of(yard, job):
    """The runner on the login on which the job runs. A machine has logins for other projects too, with its name."""
    on_host = "SELECT h.runner_sha FROM agents_host h JOIN jobs_run r ON r.host_id = h.id"
    return yard.query(f"{on_host} WHERE r.job_id = {job.id}")[0]["runner_sha"]


@pytest.mark.slow
def test_the_runner_is_upgraded_under_a_running_job(yard, client, changed_tree):
    """Failure mode 40, both ways: the new runner adopts runs of the old one, and the old one those of the new one."""
    first = LongJob(yard, name="old runner").running()
    third = LongJob(yard, name="old runner, cancelled by the new one").running()
    before = runner_of(yard, first)
    yard.stop()
    yard.root = changed_tree
    try:
        yard.start()
        first.grows(what="the log to go on after the upgrade")
        after = runner_of(yard, first)
        assert before and after not in ("", before)
        client.cancel(third.id)
        client.wait(third.id, "CANCELLED")
        second = LongJob(yard, name="new runner").running()
    finally:
        yard.stop()
        yard.root = ROOT
        yard.start()
    second.grows(what="the log to go on after the way back")
    first.succeeded()
    client.cancel(second.id)
    client.wait(second.id, "CANCELLED")
    yard.check()
    assert [len(job.starts()) for job in (first, second, third)] == [1, 1, 1]
