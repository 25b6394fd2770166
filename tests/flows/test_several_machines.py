"""Two machines on PostgreSQL, each with all processes: one stands still for a minute, dies, and comes back.

The settings are those of a new deployment: a lease of 15 s, a tick of 1 s.
"""

from __future__ import annotations

import random
import time

import pytest

from tests.flows.running_jobs import LongJob, replica_process
from tests.flows.test_brought import SHOW, Storage, archive, with_code
from tests.harness.hosts import Fleet
from tests.harness.product import Product, job_spec
from tests.harness.product.client import Refused
from tests.harness.product.second_machine import SecondMachine
from tests.harness.wait_and_processes import process_alive, wait_for

pytestmark = pytest.mark.slow
SHIPPED = {"LEASE_S": "15", "TICK_S": "1", "LINK_DEAD_S": "12"}
STILL_S = 60
HOSTS = 2
# What docs/operating.md promises: the rest of a lease, the next renewal, a new connection; and a busy machine.
FAIL_OVER_S = 15 + 5 + 40
BYTES = 3 * 1024 * 1024
PRINTS = f"head -c {BYTES} /dev/urandom | base64 -w 64; echo done-$((6*7))"


@pytest.fixture(scope="module")
def machines():
    """The first machine, and the second. Each holds the link to one of the two hosts."""
    fleet = Fleet(HOSTS).boot()
    first = Product("apart", SEGMENT_MB="1", **SHIPPED)
    second = None
    try:
        first.start().with_admin().with_hosts(fleet)
        first.keep_extras(dispatcher=0, worker=0)
        second = SecondMachine(first).start()
        yield first, second
    finally:
        if second:
            second.close()
        first.close()
        fleet.close()


@pytest.fixture
def shared(machines):
    """Both run, and each has a host."""
    wait_for(
        lambda: len(holders(machines[0])) == 2, "each machine to have a host", 120, dump=machines[0].tail
    )
    return machines


def holders(first):
    return {row["lease_owner"] for row in first.query("SELECT lease_owner FROM agents_host")} - {""}


def on_both(machine, name):
    """A job with a replica on each host."""
    job = LongJob(machine, replicas=2, name=name)
    job.running()
    return job


def is_well(client, long_job, what):
    """A job goes its way, submitted to this machine, and each replica's log is taken in."""
    short = client.submit(job_spec(["replica", "--seconds", "0.1"], name=what), patience=60)
    client.wait(short, "SUCCEEDED", timeout=FAIL_OVER_S + 60)
    for replica in ("workerpool0-0", "workerpool1-0"):
        long_job.grows(replica, f"the log of {replica} to grow: {what}")
    return short


@pytest.mark.parametrize("roles", [("dispatcher",), ("worker", "beat", "web")], ids="+".join)
def test_a_process_that_stands_still_for_a_minute_is_replaced_and_goes_on(shared, roles, record_property):
    first, second = shared
    job = on_both(first, f"beside {roles}")
    began = time.monotonic()
    still = [pid for role in roles for pid in second.processes.pause(role)]
    try:
        if "dispatcher" in roles:
            wait_for(lambda: len(holders(first)) == 1, "one dispatcher to hold both hosts", FAIL_OVER_S)
            print(
                f"leases of a dispatcher that stands still: taken over after {time.monotonic() - began:.1f} s"
            )
        is_well(first.client, job, f"while {roles} of the other machine stand still")
        record_property("fail_over_s", round(time.monotonic() - began, 1))
        print(
            f"{roles}: a job went its way and both logs grew {time.monotonic() - began:.1f} s after they stood still"
        )
        time.sleep(max(0.0, STILL_S - (time.monotonic() - began)))
    finally:
        second.processes.resume(*still)
    assert all(process_alive(pid) for pid in still), "they go on; nobody has to start them again"
    is_well(second.client, job, f"after {roles} went on")
    wait_for(lambda: len(holders(first)) == 2, "each machine to have a host again", FAIL_OVER_S)
    job.succeeded()
    first.check()
    assert len(job.starts()) == 2


def test_a_machine_that_dies_is_replaced_by_the_other_and_comes_back(shared):
    first, second = shared
    job = on_both(first, "beside a machine that dies")
    began = time.monotonic()
    second.processes.kill_all()
    second.up.wait()
    wait_for(lambda: len(holders(first)) == 1, "one dispatcher to hold both hosts", FAIL_OVER_S)
    print(f"leases of a machine that died: taken over after {time.monotonic() - began:.1f} s")
    is_well(first.client, job, "after the machine died")
    print(f"a machine that died: both logs grew after {time.monotonic() - began:.1f} s")
    second.start()
    is_well(second.client, job, "after the machine came back")
    job.succeeded()
    first.check()
    assert len(job.starts()) == 2


def test_a_log_that_one_machine_has_stored_is_read_from_the_other(shared):
    """`logs/` is the folder that they share: long logs are files there."""
    first, second = shared
    jobs = [each.submit(job_spec(["bash", "-c", PRINTS], name="long log")) for each in (first, second.client)]
    for job_id in jobs:
        first.client.wait(job_id, "SUCCEEDED")
        first.client.wait_for_log(job_id, "done-42")
    wait_for(lambda: first.query("SELECT 1 FROM jobs_logsegment"), "a log to be a file")
    for job_id in jobs:
        assert first.client.log(job_id) == second.client.log(job_id) and len(first.client.log(job_id)) > BYTES
    first.check()


class Upload:
    """A file that is sent to one machine after the other, as by a client behind a proxy."""

    def __init__(self, client, name):
        self.name = name
        self.data = random.Random(name).randbytes(1 << 20)  # noqa: S311
        Storage(client).put("beside", b"makes the bucket", bucket="shared")
        place = f"{client.url}/upload/storage/v1/b/shared/o"
        begun = client.call("POST", place, params={"uploadType": "resumable", "name": name}, json={})
        self.key = begun.headers["X-GUploader-UploadID"]

    def put(self, client, data=b"", **headers):
        where = {"uploadType": "resumable", "upload_id": self.key}
        url = f"{client.url}/upload/storage/v1/b/shared/o"
        return client.call("PUT", url, params=where, data=data, headers=headers)

    def part(self, client, start, end):
        size = len(self.data)
        return self.put(client, self.data[start:end], **{"Content-Range": f"bytes {start}-{end - 1}/{size}"})

    def so_far(self, client):
        """How many bytes this machine says there are."""
        answer = self.put(client, **{"Content-Range": "bytes */*"})
        assert answer.status_code == 308
        return int(answer.headers.get("Range", "bytes=0--1").rpartition("0-")[2]) + 1

    def read(self, client):
        url = f"{client.url}/storage/v1/b/shared/o/{self.name}"
        return client.call("GET", url, params={"alt": "media"}).content


def brings(machine, client, name):
    """A job with a replica on each host that brings code, which is sent to this machine."""
    sha = Storage(client).artifact(archive(f"print('brought: {name}', flush=True)", 1 << 20))
    pools = [with_code({"command": SHOW, "gpus": 5}, artifact=sha) for _ in range(HOSTS)]
    return machine.submit({"displayName": name, "jobSpec": {"workerPoolSpecs": pools}})


def test_a_file_that_one_machine_has_received_is_read_shipped_and_resumed_at_the_other(shared):
    """`artifacts/` and `uploads/` are shared. Each machine ships to one of the two hosts."""
    first, second = shared
    clients = [first.client, second.client]
    for here, there in (clients, clients[::-1]):
        upload = Upload(here, f"begun-at-{here.url[-4:]}")
        half = len(upload.data) // 2
        assert upload.part(here, 0, half).status_code == 308
        assert upload.so_far(there) == half
        assert upload.part(there, half, len(upload.data)).status_code == 200
        assert upload.read(here) == upload.read(there) == upload.data
    for client in clients:
        job = brings(first, client, f"sent to {client.url[-4:]}")
        first.client.wait(job, "SUCCEEDED")
    first.check()


def test_files_that_machines_do_not_share_are_noted_refused_and_sent_anew(shared):
    """And what waits for a file goes on when the folder is shared."""
    first, second = shared
    stored = Upload(first.client, "stored")
    stored.part(first.client, 0, len(stored.data))
    begun = Upload(first.client, "begun")
    begun.part(first.client, 0, 1000)
    second.stop()
    second.keep_apart("artifacts")
    second.keep_apart("uploads")
    second.start()
    try:
        assert "put artifacts/ on storage that all of them share" in second.tail()
        assert stored.read(first.client) == stored.data
        with pytest.raises(Refused, match="The bytes of this file are missing") as refused:
            stored.read(second.client)
        assert refused.value.status == 503
        assert begun.so_far(second.client) == 0 and begun.so_far(first.client) == 1000
        wait_for(lambda: len(holders(first)) == 2, "each machine to have a host", FAIL_OVER_S)
        job = brings(first, first.client, "waits for a file")
        wait_for(lambda: "could not be shipped" in second.tail(), "the second machine to ship", FAIL_OVER_S)
        assert first.client.state(job) in ("QUEUED", "PENDING")
    finally:
        second.stop()
        second.share("artifacts")
        second.share("uploads")
        second.start()
    assert "lacks files" not in second.tail()
    assert stored.read(second.client) == stored.data
    first.client.wait(job, "SUCCEEDED", timeout=FAIL_OVER_S + 120)
    assert begun.part(second.client, 1000, len(begun.data)).status_code == 200
    assert begun.read(first.client) == begun.data
    first.check()


def test_a_backup_that_is_restored_makes_both_machines_only_observe(shared):
    """G25 with `pg_dump`. The last test: the database has then lost a job that was accepted."""
    first, second = shared
    known = on_both(first, "known to the backup")
    first.client.wait_for_log(known.id, "line 0 at")
    backup = first.data / "backup.sql"
    first.postgres.dump("yard", backup)
    later = LongJob(first, gpus=1, name="after the backup").running()
    first.client.wait_for_log(later.id, "line 0 at")
    stray, host = later.run()["id"], later.host()
    second.stop()
    first.stop()
    first.database_reader.close()
    first.postgres.restore("yard", backup)
    first.start()
    first.keep_extras(dispatcher=0, worker=0)
    second.start()
    wait_for(
        lambda: first.query("SELECT run FROM jobs_stray"), "what the database does not know", dump=first.tail
    )
    waiting = second.client.submit(job_spec(["true"], name="waits for the word"), patience=60)
    for replica in ("workerpool0-0", "workerpool1-0"):
        known.grows(replica, "the log of what is known to be fetched meanwhile")
    assert second.client.state(waiting) == "QUEUED" and replica_process(host, stray), "nothing starts or ends"
    first.command("recovery", "confirm", "--stop-all")
    wait_for(lambda: not replica_process(host, stray), "the stray to be ended", dump=first.tail)
    second.client.wait(waiting, "SUCCEEDED", timeout=FAIL_OVER_S + 60)
    known.succeeded()
    assert len(known.starts()) == 2
