"""Hosts are drained, declared gone and come back, and a backup is restored, while jobs run on real hosts."""

from __future__ import annotations

import json
import shutil
import sqlite3

import pytest

from tests.flows.running_jobs import LongJob, replica_process
from tests.harness.product import job_spec
from tests.harness.wait_and_processes import wait_for

pytestmark = pytest.mark.needs_namespaces
P, W = "workerpool0-0", "workerpool1-0"


@pytest.fixture(autouse=True)
def healed(yard, shared_product):
    yield
    for host in shared_product.fleet or ():
        host.heal()


def cluster(yard, run_id):
    [row] = yard.query(f"SELECT \"order\" FROM jobs_run WHERE id = '{run_id}'")
    order = json.loads(row["order"]) if isinstance(row["order"], str) else row["order"]
    return json.loads(order["env"]["CLUSTER_SPEC"])["cluster"]


def moved(job, replica, old):
    def there():
        run = job.run(replica)
        return not run["held"] and run["host_id"] != old["host_id"] and run["phase"] == "running"

    return there


def test_replicas_leave_a_drained_host_under_the_same_name_and_peers_learn_it(yard, client):
    """S0-11. The job stays RUNNING, no restart is counted, and both replicas get the same new cluster."""
    job = LongJob(yard, replicas=2, name="drained").running()
    for replica in (P, W):
        client.wait_for_log(job.id, "line 0 at", replica)
    old, host = job.run(W), job.host(W)
    yard.command("host", "drain", host.name, "--message", "new disk")
    try:
        wait_for(moved(job, W, old), "the replica to run elsewhere", dump=yard.tail)
        wait_for(lambda: job.run(P)["phase"] == "running", "its peer to run again", dump=yard.tail)
        new, peer = job.run(W), job.run(P)
        assert cluster(yard, new["id"]) == cluster(yard, peer["id"]) != cluster(yard, old["id"])
        job.grows(W)
        job.grows(P)
        listed = yard.command("host", "list").stdout
        assert f"{host.name}\t" in listed and "\tdrained\t" in listed
    finally:
        yard.command("host", "uncordon", host.name)
    job.succeeded()
    yard.check()
    counted = yard.query(f"SELECT restarts FROM jobs_replica WHERE job_id = {job.id}")
    states = f"SELECT to_state FROM jobs_transition WHERE job_id = {job.id} AND subject = 'job' ORDER BY id"
    assert [row["restarts"] for row in counted] == [0, 0]
    assert [row["to_state"] for row in yard.query(states)] == ["QUEUED", "PENDING", "RUNNING", "SUCCEEDED"]
    assert sorted(job.starts()) == sorted(
        f"{job.id}-{name}-a1-r{number}" for name in (P, W) for number in (0, 1)
    )


@pytest.mark.slow
def test_a_host_that_was_declared_gone_ends_what_it_still_runs_when_it_comes_back(yard, client):
    """Only a person frees the claims of an unreachable host. The replica goes on elsewhere; its old run ends first."""
    job = LongJob(yard, replicas=2, name="declared gone").running()
    client.wait_for_log(job.id, "line 0 at", W)
    old, host = job.run(W), job.host(W)
    host.blackhole()
    yard.wait_for_hosts("unreachable", host.name)
    refused = yard.command("host", "declare-gone", host.name, check=False)
    assert refused.returncode == 1 and f"--confirm {host.name}" in refused.stderr
    assert not job.run(W)["released_at"]
    yard.command("host", "declare-gone", host.name, "--confirm", host.name)
    wait_for(moved(job, W, old), "the replica to run elsewhere", dump=yard.tail)
    assert replica_process(host, old["id"]), "the lost host has no order to stop yet"
    host.heal()
    yard.wait_for_hosts("up", host.name)
    wait_for(lambda: not replica_process(host, old["id"]), "its former self to be ended", dump=yard.tail)
    again = (
        "SELECT m.gone_at FROM jobs_hostmaintenance m JOIN agents_host h ON h.id = m.host_id"
        f" WHERE h.name = '{host.name}'"
    )
    wait_for(
        lambda: yard.query(again)[0]["gone_at"] is None, "the host to be in service again", dump=yard.tail
    )
    job.succeeded()
    yard.check()
    restarts = yard.query(f"SELECT name, restarts FROM jobs_replica WHERE job_id = {job.id} ORDER BY name")
    assert [(row["name"], row["restarts"]) for row in restarts] == [(P, 0), (W, 1)]


FORGED = tuple(f"179500000000000000{number}-workerpool0-0-a1-r0" for number in (1, 2))
FORGER = """
import json, os, pathlib, signal, sys, time
base = pathlib.Path(os.environ["TRAINYARD_WORK"]).parents[1]
mine = json.loads((base / "runs" / os.environ["TRAINYARD_RUN"] / "facts.json").read_text())
assert len(mine["seal"]) == 64
for run, seal in zip(sys.argv[1:], ("", mine["seal"])):
    (base / "runs" / run).mkdir()
    (base / "runs" / run / "facts.json").write_text(json.dumps(dict(mine, run=run, seal=seal)))
(base / "mark").write_text(str(int(time.time()) + 86400) + " " + mine["seal"])
for each in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        words = (each / "cmdline").read_bytes().split(b"\\0")
    except OSError:
        continue
    if b"serve" in words and any(b".trainyard/bin/" in word for word in words):
        os.kill(int(each.name), signal.SIGKILL)
"""


@pytest.mark.slow
def test_a_forged_report_is_shown_and_stops_nothing(yard, client):
    """A job is the same Unix user as the runner: a report about unknown runs counts only under the console's seal."""
    job = yard.submit(job_spec(["python3", "-c", FORGER, *FORGED], name="forger"))
    client.wait(job, "SUCCEEDED")
    told = "SELECT kind, text FROM agents_hostevent WHERE kind IN ('unknown_run', 'forged_mark')"
    wait_for(lambda: len(yard.query(told)) == 3, "the host's history to have all three", dump=yard.tail)
    [host_id] = {row["host_id"] for row in yard.runs(job)}
    host = next(
        each
        for each in yard.fleet
        if yard.query(f"SELECT 1 FROM agents_host WHERE id = {host_id} AND name = '{each.name}'")
    )
    shown = yard.command("recovery", "show").stdout
    assert shown.startswith("nothing waits to be confirmed") and shown.count("not ours\t1795") == 2
    other = LongJob(yard, name="goes on").running()
    other.succeeded()
    for run in FORGED:
        yard.command("host", "dismiss-run", host.name, run)
    assert "not ours" not in yard.command("recovery", "show").stdout
    [base] = host.path(f"{host.home}/.trainyard").glob("*/mark")
    true = f"SELECT mark FROM agents_host WHERE id = {host_id}"
    wait_for(
        lambda: int(base.read_text().split()[0]) <= yard.query(true)[0]["mark"],
        "the forged mark to be written over",
        dump=yard.tail,
    )
    yard.check()


@pytest.mark.slow
def test_after_an_old_backup_nothing_is_started_or_killed_before_an_admin_confirms(
    yard, shared_product, client
):
    """Failure mode 50 and G25: a database of yesterday, with hosts of today."""
    known = LongJob(yard, name="known to the backup").running()
    client.wait_for_log(known.id, "line 0 at")
    backup = yard.data / "backup.sqlite3"
    with sqlite3.connect(yard.database) as source, sqlite3.connect(backup) as copy:
        source.backup(copy)
    later = LongJob(yard, name="after the backup").running()
    client.wait_for_log(later.id, "line 0 at")
    stray, host = later.run()["id"], later.host()
    kept, home = known.run()["id"], known.host()
    yard.stop()
    for suffix in ("", "-wal", "-shm"):
        (yard.data / f"trainyard.sqlite3{suffix}").unlink(missing_ok=True)
    shutil.copy(backup, yard.database)
    yard.start()
    try:
        # This one: tests before may have left others in the backup.
        strays = f"SELECT run FROM jobs_stray WHERE run = '{stray}'"
        wait_for(lambda: yard.query(strays), "the product to see what it does not know", dump=yard.tail)
        shown = yard.command("recovery", "show").stdout
        assert shown.startswith("observing: ") and f"unknown\t{stray}\t{host.name}\t" in shown
        waiting = LongJob(yard, name="waits for the word")
        client.cancel(known.id)
        known.grows(what="the log of what is known to be fetched meanwhile")
        assert (client.state(waiting.id), client.state(known.id)) == ("QUEUED", "RUNNING")
        assert replica_process(host, stray) and replica_process(home, kept), "nothing is killed"
        assert not yard.ledger(waiting.id), "nothing is started"
        yard.command("recovery", "confirm", "--stop-all")
        wait_for(lambda: not replica_process(host, stray), "the stray to be ended", dump=yard.tail)
        client.wait(known.id, "CANCELLED")
        waiting.running().succeeded()
    finally:
        shared_product.clear()  # its database has lost a job that was accepted: nothing can be checked any more


OLD_WAY_CUT = "table inet old { chain in { type filter hook input priority 0; tcp dport 22 drop; }; }\n"


def second_way(host):
    """Give the host another address and a second sshd with the same key. Returns both."""
    address, port = f"10.77.200.{10 + host.number}", 2222
    host.run_inside("ip", "addr", "add", f"{address}/16", "dev", "eth0")
    host.run_inside(
        *("/usr/sbin/sshd", "-f", "/etc/ssh/sshd_config", "-p", str(port)),
        *("-o", "PidFile=/run/sshd-2.pid", "-E", "/var/log/sshd-2.log"),
    )
    return address, port


@pytest.mark.slow
def test_running_jobs_go_on_while_their_host_gets_another_address(yard, client):
    """A host is edited: another machine is refused and nothing changes; the same machine under another address is
    taken over with its runs, and the old address can go away."""
    job = LongJob(yard, name="moved machine").running()
    client.wait_for_log(job.id, "line 0 at")
    host, run = job.host(), job.run()
    other = next(each for each in yard.fleet if each is not host)
    wrong = yard.command("host", "edit", host.name, "--address", other.address, check=False)
    assert wrong.returncode == 1 and "it is another machine" in wrong.stderr
    busy = yard.command("host", "edit", host.name, "--user", "root", check=False)
    assert busy.returncode == 1 and "belongs to the login" in busy.stderr
    job.grows()
    address, port = second_way(host)
    edited = yard.command("host", "edit", host.name, "--address", address, "--port", str(port))
    assert edited.stdout == f"{host.name} is changed.\n"
    try:
        # The old way is cut, so that what grows came by the new one.
        host.run_inside("nft", "-f", "-", stdin=OLD_WAY_CUT)
        job.grows(what="its log to grow by the new way")
        assert job.run()["id"] == run["id"] and len(job.starts()) == 1
        [row] = yard.query(f"SELECT status, address, port FROM agents_host WHERE name = '{host.name}'")
        assert dict(row) == {"status": "up", "address": address, "port": port}
        job.succeeded()
    finally:
        host.run_inside("nft", "delete", "table", "inet", "old")
        yard.command("host", "edit", host.name, "--address", host.address, "--port", "22")
    yard.wait_for_hosts("up", host.name)
    yard.check()
