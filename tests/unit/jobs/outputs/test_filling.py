"""What a host is filled with never replaces what only this host has, and comes from all hosts of the job."""

from __future__ import annotations

import os
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from agents.infra.clock import Clock
from agents.ssh.outputs import OutputsConversation
from jobs.artifacts import buckets, objects
from jobs.host_sync import prepared, wanted
from jobs.lifecycle.advance import advance_quietly
from jobs.maintenance import cordon_and_drain
from jobs.models import HostOutputs, Preparation, PreparationNeed, Run, StoredObject
from jobs.outputs import claiming, filling, moving, times
from jobs.outputs.uploading import Upload
from jobs.preparations import reasons
from jobs.wake import hints
from tests.unit.jobs.conftest import gang, pool_of
from tests.unit.jobs.fake_hosts import settle
from tests.unit.jobs.outputs.conftest import grow_old, look

pytestmark = pytest.mark.django_db(transaction=True)

LATEST = "bucket-1/run/latest.pt"


@pytest.fixture
def host(add_files):
    return add_files()


def settle_all(control_plane, *hosts):
    for _ in range(5):
        settle(control_plane, *[host.fake for host in hosts])
        control_plane.look(())


@pytest.fixture
def moved(begin, host, add_files, control_plane):
    """A job that was drained to another host: it runs there, and its first host still has what it wrote."""
    job = begin(host)
    host.write(job, LATEST, b"old")
    look()
    grow_old()
    look()
    other = add_files("h2")
    cordon_and_drain.drain(host.row, "", None, False, "alice", timezone.now())
    settle_all(control_plane, host, other)
    look()
    look()
    settle_all(control_plane, host, other)
    assert (other.top(job) / LATEST).read_bytes() == b"old"
    return job, other


def test_a_checkpoint_that_is_newer_than_the_storage_survives_a_restart_on_its_host(
    moved, host, control_plane
):
    job, other = moved
    other.write(job, LATEST, b"newer, of the last second")
    other.fake.end(control_plane, Run.objects.get(host=other.row).pk, exit_code=137)
    settle_all(control_plane, host, other)
    look()
    assert (other.top(job) / LATEST).read_bytes() == b"newer, of the last second"
    assert other.outputs(job).filled_at is not None, "its run waits no longer"
    assert b"".join(objects.open_object(StoredObject.objects.get())) == b"newer, of the last second"


def test_a_file_that_could_not_be_stored_is_not_replaced(moved, host, control_plane, monkeypatch):
    job, other = moved
    other.write(job, LATEST, b"newer")
    other.fake.end(control_plane, Run.objects.get(host=other.row).pk, exit_code=137)
    settle_all(control_plane, host, other)
    monkeypatch.setattr(Upload, "_store_one", lambda *_: "Input/output error")
    look()
    assert (other.top(job) / LATEST).read_bytes() == b"newer" and other.outputs(job).filled_at is not None


@pytest.fixture
def both(add_files, submit, control_plane):
    """Two hosts with a replica each of one job, which are started together."""
    hosts = add_files("h1", gpus=1), add_files("h2", gpus=1)
    document = gang(pool_of(gpus=1), pool_of(gpus=1))
    document["jobSpec"]["baseOutputDirectory"] = {"outputUriPrefix": "gs://bucket-1/run"}
    document["jobSpec"]["scheduling"] = {"restartJobOnWorkerRestart": True}
    job = submit(document)
    settle_all(control_plane, *hosts)
    assert Run.objects.filter(phase="running").count() == 2
    return job, *hosts


AWKWARD = ["epoch-10.pt", "epoch-100.pt", "epoch-9.pt"]


def test_files_that_are_put_on_the_next_host_keep_their_times_and_come_in_their_order(
    begin, host, add_files, control_plane
):
    """The newest checkpoint is the newest there, by the time of its last change and by when its directory got it."""
    job = begin(host)
    written = {"epoch-9.pt": 10**18 + 1, "epoch-10.pt": 10**18 + 2, "epoch-100.pt": 10**18 + 3 * 10**9}
    for name, at in written.items():
        os.utime(host.write(job, f"bucket-1/run/{name}", name.encode()), ns=(at, at))
    for _ in range(2):
        look()
        grow_old()
    bucket = buckets.find(job.project, "bucket-1")
    assert [row.name for row in objects.list_objects(bucket).objects] == [f"run/{name}" for name in AWKWARD]
    other = add_files("h2")
    cordon_and_drain.drain(host.row, "", None, False, "alice", timezone.now())
    settle_all(control_plane, host, other)
    look()
    look()
    found = {path.name: path.stat() for path in (other.top(job) / "bucket-1/run").glob("*.pt")}
    assert {name: state.st_mtime_ns for name, state in found.items()} == written
    assert sorted(found, key=lambda name: found[name].st_ctime_ns) == list(written)
    generations = set(StoredObject.objects.values_list("generation", flat=True))
    grow_old()
    look()
    assert set(StoredObject.objects.values_list("generation", flat=True)) == generations, "none is news"


@pytest.mark.parametrize("noted", [None, "", "-5", "1e9", "9" * 19, "9" * 400, 7, ["1"]])
def test_an_object_that_notes_no_time_is_as_old_as_the_storage_says(project, noted):
    buckets.create(project, "bucket-1", "alice", timezone.now())
    row = objects.put_object(project, "bucket-1", "data", [b"x"])
    row.created_at, row.metadata = datetime(2001, 9, 9, 1, 46, 40, 7, tzinfo=UTC), {"mtime_ns": noted}
    assert times.mtime_ns(row) == 10**18 + 7000


def kill(control_plane, *hosts):
    for host in hosts:
        for run in Run.objects.filter(host=host.row, phase="running"):
            host.fake.end(control_plane, run.pk, exit_code=137)
    settle_all(control_plane, *hosts)


def test_a_host_is_filled_with_what_one_that_waits_too_has_not_stored_yet(both, control_plane):
    job, one, two = both
    look()
    one.write(job, LATEST, b"of the last second")
    kill(control_plane, one, two)
    assert set(Run.objects.exclude(phase="closed").values_list("phase", flat=True)) == {"created"}
    HostOutputs.objects.update(due_at=timezone.now())
    moving.move(two.outputs(job).pk)
    assert two.outputs(job).filled_at is None, "the other one has what is stored nowhere"
    look()
    look()
    assert (two.top(job) / LATEST).read_bytes() == b"of the last second"
    assert all(HostOutputs.objects.values_list("filled_at", flat=True))


def test_hosts_that_are_left_before_they_are_filled_do_not_wait_for_each_other(both, control_plane):
    job, one, two = both
    one.write(job, LATEST, b"here only")
    kill(control_plane, one, two)
    Run.objects.update(phase="closed")
    look()
    assert all(HostOutputs.objects.values_list("settled_at", flat=True))


def state_of(job):
    """What the job is, or is to become, after a decision about it."""
    advance_quietly([job.pk], Clock())
    job.refresh_from_db()
    return job.outcome or job.state


@pytest.fixture
def unfilled(begin, host, project):
    """A job below whose output directory something is stored that its host does not have."""
    buckets.create(project, "bucket-1", "alice", timezone.now())
    objects.put_object(project, "bucket-1", "run/data", [b"data"])
    job = begin(host)
    assert host.outputs(job).filled_at is None and job.state == "PENDING"
    return job


def test_a_host_on_which_no_run_waits_is_not_filled(unfilled):
    Run.objects.update(phase="closed")
    look()
    row = HostOutputs.objects.get()
    assert row.filled_at is None and row.settled_at is not None


def test_a_host_without_room_is_not_filled_and_says_so(unfilled, host, connections):
    """Before the first byte: the runs of others write to that disk."""
    connections.variables["TRAINYARD_FLOOR_MB"] = str(1 << 30)
    look()
    row = HostOutputs.objects.get()
    assert row.filled_at is None and row.problem.startswith(
        "The files that this job needs cannot be put on host h1"
    )
    assert "the disk of this host is full" in row.problem and row.problem.endswith("when there is room.")
    assert not (host.top(unfilled) / "bucket-1/run/data").exists()
    connections.variables.clear()
    look()
    assert (host.top(unfilled) / "bucket-1/run/data").read_bytes() == b"data"
    row.refresh_from_db()
    assert row.filled_at is not None and not row.problem


def test_what_is_put_on_hosts_keeps_the_rate_of_shipping(unfilled, monkeypatch):
    taken = []
    monkeypatch.setattr(filling.Rate, "take", lambda rate, size: taken.append(size))
    look()
    assert HostOutputs.objects.get().filled_at is not None and sum(taken) == len(b"data")


def test_fills_leave_threads_for_what_jobs_write(unfilled, host, monkeypatch):
    monkeypatch.setattr(moving, "_fills", threading.BoundedSemaphore(1))
    host.write(unfilled, "bucket-1/run/own", b"own")
    with moving._fills:
        for _ in range(2):
            look()
            grow_old()
        row = HostOutputs.objects.get()
        assert row.filled_at is None and row.due_at is not None
        unfilled.refresh_from_db()
        assert unfilled.reason == (
            "h1 waits with the outputs of earlier runs: files of other jobs are put on their hosts first"
        )
        assert StoredObject.objects.filter(name="run/own").exists()
    look()
    row.refresh_from_db()
    assert row.filled_at is not None and not row.problem
    assert moving._fills.acquire(blocking=False), "it is given back"


def test_a_run_is_not_late_while_its_host_is_being_filled(unfilled, monkeypatch):
    job = unfilled
    monkeypatch.setattr(moving, "others_are_stored", lambda row: False)
    long_ago = timezone.now() - timedelta(hours=5)
    Run.objects.update(created_at=long_ago)
    look()
    assert state_of(job) == "PENDING", "another host is still being read"
    Run.objects.update(prepared_at=long_ago)
    assert state_of(job) == "QUEUED", "nothing has moved for hours"


def test_the_job_says_that_its_host_is_being_filled(unfilled, control_plane, host, monkeypatch):
    job, seen = unfilled, []
    assert reason(job) == "h1 gets the outputs of earlier runs"
    monkeypatch.setattr(claiming, "RENEWED_S", 0.0)
    write = OutputsConversation.write

    def told(talk, *given):
        state = write(talk, *given)
        seen.append(reason(job))
        return state

    monkeypatch.setattr(OutputsConversation, "write", told)
    look()
    assert seen == ["h1 gets the outputs of earlier runs (100 %)"]
    assert reason(job) == "", "it is filled"
    settle(control_plane, host.fake)
    assert state_of(job) == "RUNNING" and reason(job) == ""


def test_a_job_says_both_what_is_prepared_and_what_is_filled(unfilled):
    run = Run.objects.get()
    of_run = {"kind": "image", "key": "k", "what": {}, "title": "the image a", "used_at": timezone.now()}
    row = Preparation.objects.create(host=run.host, created_at=timezone.now(), **of_run)
    PreparationNeed.objects.create(run=run, preparation=row)
    Run.objects.update(preparing=True)
    look()
    assert reason(unfilled) == "h1 prepares the image a"
    HostOutputs.objects.update(filled_at=None)
    reasons.explain(unfilled.pk, timezone.now())
    assert "h1 prepares the image a" in reason(unfilled) and "h1 gets the outputs" in reason(unfilled)
    Preparation.objects.update(phase="READY")
    prepared.settle(timezone.now())
    assert reason(unfilled).startswith("h1 gets the outputs of earlier runs")


def reason(job):
    job.refresh_from_db()
    return job.reason


def test_bytes_that_are_put_on_a_host_are_progress(unfilled, monkeypatch):
    job = unfilled
    monkeypatch.setattr(claiming, "RENEWED_S", 0.01)
    Run.objects.update(created_at=timezone.now() - timedelta(hours=5))
    write, seen = OutputsConversation.write, []

    def slow(talk, *given):
        Run.objects.update(prepared_at=None)
        time.sleep(0.1)
        state = write(talk, *given)
        seen.append(state_of(job))
        return state

    monkeypatch.setattr(OutputsConversation, "write", slow)
    look()
    look()
    assert seen == ["PENDING"]


def test_a_gang_starts_when_all_of_its_hosts_are_filled(both, control_plane, monkeypatch):
    job, one, two = both
    one.write(job, LATEST, b"1")
    kill(control_plane, one, two)
    told = []
    monkeypatch.setattr(hints, "hosts", told.append)
    HostOutputs.objects.update(due_at=timezone.now())
    moving.move(one.outputs(job).pk)
    HostOutputs.objects.update(due_at=timezone.now())
    moving.move(two.outputs(job).pk)
    assert two.outputs(job).filled_at is not None and one.outputs(job).filled_at is None
    assert waiting(one) == waiting(two) == [True]
    look()
    assert waiting(one) == waiting(two) == [False] and set(told[-1]) == {one.row.pk, two.row.pk}


def waiting(host):
    runs = Run.objects.filter(host=host.row, phase="created").values_list("pk", flat=True)
    found = wanted.wanted(host.row.pk)
    return [found[run].held_back for run in runs]
