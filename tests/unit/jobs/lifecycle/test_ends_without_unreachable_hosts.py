"""A job may end without the proof of an unreachable host, and of no other; an end is dated after the facts it follows.

The deciding process may be suspended between any two of its steps. Here threads with connections of their own do what
other processes do meanwhile. On SQLite they wait until the writer has ended, and nothing can come in between.
"""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest
from django.db import InternalError, connection, transaction
from django.utils import timezone

from agents.hosts import host_history
from agents.infra.clock import Clock
from agents.links import leases
from agents.models import Host, HostEvent, HostStatus
from jobs import services
from jobs.host_sync import intake
from jobs.lifecycle import advance, snapshot
from jobs.models import GpuClaim, Run, Transition
from tests.harness.wait_and_processes import wait_for
from tests.unit.jobs.conftest import gang, pool_of, spec
from tests.unit.jobs.fake_hosts import settle
from tests.unit.jobs.host_sync.test_intake import CLOSED
from tests.unit.jobs.test_sweep import now_of, take_only

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(240)]
WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted"


def somebody_waits_for_a_lock():
    with connection.cursor() as cursor:
        cursor.execute(WAITING)
        return cursor.fetchone()[0] == 1


class Others:
    """Something that another thread does at the same time, once. The test fails with what it raises."""

    def __init__(self):
        self.errors, self.threads = [], []

    def start(self, act):
        def work():
            try:
                act()
            except Exception as problem:
                self.errors.append(problem)
            finally:
                connection.close()

        thread = threading.Thread(target=work)
        self.threads.append(thread)
        thread.start()
        return thread

    def meanwhile(self, act):
        """Wait until it is done, on a database where two transactions may write at once."""
        thread = self.start(act)
        if connection.vendor == "postgresql":
            thread.join(60)
            assert not thread.is_alive(), "it should not have waited"

    def end(self):
        for thread in self.threads:
            thread.join(60)
        assert self.errors == [] and not any(thread.is_alive() for thread in self.threads)


@pytest.fixture
def others():
    made = Others()
    yield made
    made.end()


@pytest.fixture
def running(add_host, submit, control_plane):
    """A job with a replica on a host that has just become unreachable."""
    host = add_host(gpus=1)
    job = submit(spec(gpus=1))
    settle(control_plane, host)
    status(host, HostStatus.UNREACHABLE)
    return host, now_of(job)


def status(host, new):
    assert host_history.set_status(host.row.pk, new, "", timezone.now())


def book_of(host):
    """The lines in the order in which they were written."""
    return list(HostEvent.objects.filter(host=host.row).order_by("pk"))


def test_no_job_ends_beside_a_host_that_answers_again_while_the_decider_is_suspended(
    running, others, control_plane, monkeypatch
):
    host, job = running
    real, seen = advance.decide, []

    def decide(view, *more):
        if not seen:
            others.meanwhile(lambda: status(host, HostStatus.UP))
        seen.append([run.unreachable_since is None for run in view.runs])
        return real(view, *more)

    monkeypatch.setattr(advance, "decide", decide)
    services.cancel(job, "alice", timezone.now())
    others.end()
    assert seen[0] == [False] and Host.objects.get().status == HostStatus.UP
    if connection.vendor == "postgresql":
        assert seen[1:] == [[True]] and now_of(job).state == "CANCELLING"
        assert Run.objects.get().silent_since is None
        settle(control_plane, host)
        assert now_of(job).state == "CANCELLED"
        assert [line.kind for line in book_of(host)] == ["unreachable", "up"]
    else:
        assert [line.kind for line in book_of(host)] == ["unreachable", "job_ended", "up"]


def test_until_the_end_is_written_its_host_stays_unreachable_and_its_lease_is_renewed(
    running, others, monkeypatch
):
    host, job = running

    def before_the_commit(name):
        if name == "advance.before" and len(others.threads) == 0:
            others.meanwhile(renew)
            others.start(lambda: status(host, HostStatus.UP))
            if connection.vendor == "postgresql":
                wait_for(somebody_waits_for_a_lock, "the host's answer to wait for the decision")

    def renew():
        until = timezone.now() + timedelta(hours=1)
        leases.renew_and_take("dispatcher-1", {host.row.pk: 7}, until, 15.0, False)

    monkeypatch.setattr(advance, "failpoint", before_the_commit)
    services.cancel(job, "alice", timezone.now())
    others.end()
    fell_silent, ended, answered = book_of(host)
    assert (fell_silent.kind, ended.kind, answered.kind) == ("unreachable", "job_ended", "up")
    assert f"job {job.pk} (workerpool0-0)." in ended.text
    run = Run.objects.get()
    assert (now_of(job).state, run.silent_since, job.ended_at) == ("CANCELLED", fell_silent.at, ended.at)
    assert Host.objects.get().lease_until > timezone.now() + timedelta(minutes=30)


def test_the_check_of_a_full_host_is_asked_for_before_its_reports_and_without_locks(
    add_host, submit, others, monkeypatch
):
    """The transaction that holds the host's status may be waiting for one of the runs that the batch is about."""
    host, _ = add_host(), submit()
    run, real, held, found = Run.objects.get(), intake.lock_jobs, threading.Event(), []
    refused = CLOSED | {"why": "refused", "refusal": "disk_full", "never_started": True}

    def hold_its_status_then_a_run():
        with transaction.atomic():
            host_history.lock_statuses([host.row.pk])
            held.set()
            wait_for(somebody_waits_for_a_lock, "the change of status to wait")
            snapshot.lock_runs(ids=[run.pk])

    def lock_jobs(runs):
        found.append(Host.objects.get().status)
        return real(runs)

    monkeypatch.setattr(intake, "lock_jobs", lock_jobs)
    if connection.vendor == "postgresql":
        others.start(hold_its_status_then_a_run)
        assert held.wait(30)
    take_only(host, run, refused)
    others.end()
    assert found == [HostStatus.CHECKING] and Run.objects.get().refusal == "disk_full"
    assert Host.objects.get().due_at is not None
    status(host, HostStatus.UP)
    take_only(host, run, refused)  # reported again, it is not new
    assert Host.objects.get().status == HostStatus.UP


def test_history_names_the_runs_that_were_left_and_they_close_when_the_host_answers(
    add_host, submit, control_plane
):
    near, far = add_host("near", cpus=1), add_host("far", cpus=1)
    job = submit(gang(pool_of(), pool_of()))
    settle(control_plane, near, far)
    first = Run.objects.get(replica__name="workerpool0-0")
    here, there = (near, far) if first.host_id == near.row.pk else (far, near)
    status(there, HostStatus.UNREACHABLE)
    here.end(control_plane, first.pk, exit_code=0)
    left = Run.objects.exclude(pk=first.pk).get()
    since = Host.objects.get(pk=there.row.pk).status_since
    assert (now_of(job).state, job.error_message, left.silent_since) == ("SUCCEEDED", "", since)
    told = Transition.objects.get(job=job, subject="job", to_state="SUCCEEDED").cause
    assert f"No answer from {there.row.name} since {since:%Y-%m-%d %H:%M:%S} UTC (workerpool1-0)." in told
    assert "as soon as its host answers" in told
    assert [first.silent_since, Run.objects.get(pk=first.pk).silent_since] == [None, None]
    status(there, HostStatus.UP)
    settle(control_plane, near, far)
    left.refresh_from_db()
    assert left.released_at > job.ended_at and left.silent_since == since
    assert "stop" in Transition.objects.filter(job=job, subject="workerpool1-0").last().cause
    assert not GpuClaim.objects.filter(released_at=None).exists()


@pytest.mark.parametrize("where", ["before it looks", "before it locks", "until its connection is gone"])
def test_a_decision_is_not_dated_before_its_facts(where, add_host, submit, control_plane, monkeypatch):
    """The deciding process is suspended; meanwhile the runs of its jobs end, and another process stores that."""
    host = add_host(cpus=8)
    jobs = [submit() for _ in range(2)]
    settle(control_plane, host)
    lock, decide_all, told = snapshot.lock, advance._advance, []

    def stand_still():
        if not told:
            time.sleep(0.2)  # the end must not be dated before this pause
            for run in Run.objects.all():
                take_only(host, run, CLOSED)
            told.append(timezone.now())

    def observing():
        stand_still()
        return False

    def late_lock(ids):
        stand_still()
        return lock(ids)

    def cut_off(batch, clock):
        if told:
            return decide_all(batch, clock)
        # Before it tries the jobs again, one by one.
        monkeypatch.setattr(advance.recovery, "in_recovery_mode", observing)
        raise InternalError("terminating connection due to idle-in-transaction timeout")

    if where == "before it looks":
        monkeypatch.setattr(advance.recovery, "in_recovery_mode", observing)
    elif where == "before it locks":
        monkeypatch.setattr(snapshot, "lock", late_lock)
    else:
        monkeypatch.setattr(advance, "_advance", cut_off)
    advance.advance([job.pk for job in jobs], Clock())
    assert [now_of(job).state for job in jobs] == ["SUCCEEDED"] * 2
    assert all(job.ended_at >= told[0] for job in jobs)


def test_a_status_is_not_dated_before_the_previous_one(add_host):
    """A check began, the host became unreachable, and the check found it usable."""
    host, began = add_host(), timezone.now()
    status(host, HostStatus.UNREACHABLE)
    assert host_history.set_status(host.row.pk, HostStatus.UP, "", began - timedelta(seconds=5))
    fell_silent, answered = book_of(host)
    assert (fell_silent.kind, answered.kind) == ("unreachable", "up") and answered.at == fell_silent.at
    assert Host.objects.get().status_since == answered.at
    assert not host_history.set_status(host.row.pk, HostStatus.UP, "", timezone.now())
    assert len(book_of(host)) == 2
