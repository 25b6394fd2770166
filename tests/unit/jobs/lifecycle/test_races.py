"""All writers at once, on real connections: nothing is lost, nothing is held twice, no writer waits for ever.

Eight writers (worker threads of hosts, deciders, schedulers, a sweeper, a canceller) work on forty jobs. On PostgreSQL
this is about row locks and their order; on SQLite about writers that queue for the one lock.
"""

from __future__ import annotations

import random
import threading
import time
from itertools import pairwise

import pytest
from django.db import connection
from django.utils import timezone

from agents.infra.clock import Clock
from agents.infra.refusals import Refused
from agents.links.control_plane import Arrival
from jobs import services, sweep
from jobs.host_sync.control_plane import JobsControlPlane
from jobs.lifecycle.advance import advance
from jobs.maintenance import location_bindings
from jobs.maintenance.remove_host import remove_host
from jobs.models import GpuClaim, HostMaintenance, Job, LocationBinding, Project, QueuePin, Run, Transition
from jobs.rules.lifecycle.states import TERMINAL, JobState, legal
from jobs.rules.scheduling.reorder import Move, To
from jobs.scheduling import capacity, reorder, scheduler
from jobs.scheduling.what_if import what_if
from tests.unit.jobs.conftest import gang, pool_of, spec

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(240)]
DEADLINE_S = 120


class Crowd:
    """Threads that repeat one thing until the test stops them. `errors` has what any of them raised."""

    def __init__(self):
        self.over, self.errors, self.threads = threading.Event(), [], []

    def go(self, act, pause_s=0.02):
        def work():
            try:
                while not self.over.is_set():
                    act()
                    time.sleep(pause_s)
            except Exception as problem:
                self.errors.append(problem)
                self.over.set()
            finally:
                connection.close()

        self.threads.append(threading.Thread(target=work))
        self.threads[-1].start()

    def stop(self):
        self.over.set()
        for thread in self.threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in self.threads)


def wait_until_over(crowd):
    end = time.monotonic() + DEADLINE_S
    while Job.objects.exclude(state__in=TERMINAL).exists() and not crowd.over.is_set():
        assert time.monotonic() < end, list(Job.objects.values_list("state", "reason", "flags"))
        time.sleep(0.05)


def live(host, control_plane, dice):
    """A host that does what is wanted, ends some runs, and reports everything twice."""

    def act():
        host.reconcile(control_plane)
        for run, fake_run in list(host.runs.items()):
            if fake_run.phase == "running" and dice.random() < 0.7:
                host.end(control_plane, run, exit_code=dice.choice([0, 0, 0, 7, 134]))
        told = [Arrival(run, fake_run.fact("boot-1")) for run, fake_run in host.runs.items()]
        host.report(control_plane, told[-3:] * 2)

    return act


@pytest.mark.parametrize("seed", [1])
def test_concurrent_processes_lose_and_start_nothing_twice(seed, add_host, submit):
    hosts = [add_host(f"h{number}", cpus=3, gpus=2) for number in range(4)]
    documents = [spec(gpus=1), gang(pool_of(), pool_of(count=2)), spec(), spec(gpus=2)]
    jobs = [submit(documents[number % 4], place=False) for number in range(40)]
    dice, crowd, control_plane = random.Random(seed), Crowd(), JobsControlPlane(lambda ids: ())
    try:
        for host in hosts:
            crowd.go(live(host, control_plane, random.Random(dice.random())))
        crowd.go(lambda: scheduler.schedule(timezone.now()))
        crowd.go(lambda: scheduler.schedule(timezone.now()))
        crowd.go(lambda: sweep.advance_due(Clock()))
        crowd.go(lambda: advance([job.pk for job in dice.sample(jobs, 10)], Clock()))
        for job in jobs[::9]:
            services.cancel(job, "alice", timezone.now())
        wait_until_over(crowd)
    finally:
        crowd.stop()
        control_plane.close()
    assert crowd.errors == []
    assert_all_is_well(jobs, hosts)


def assert_all_is_well(jobs, hosts):
    started = [run for host in hosts for run in host.started_runs]
    assert len(started) == len(set(started))
    assert not GpuClaim.objects.filter(released_at=None).exists()
    assert not Run.objects.filter(released_at=None).exists()
    for job in jobs:
        rows = list(Transition.objects.filter(job=job, subject="job"))
        assert sum(row.to_state in TERMINAL for row in rows) == 1 and rows[-1].to_state in TERMINAL
        for before, after in pairwise(rows):
            assert before.to_state == after.from_state
            assert legal(JobState(after.from_state), JobState(after.to_state))


def test_of_two_schedulers_one_places_and_the_other_finds_nothing_to_do(add_host, submit):
    add_host(cpus=100)
    jobs = [submit(place=False) for _ in range(20)]
    barrier, errors = threading.Barrier(4), []

    def one():
        try:
            barrier.wait(30)
            scheduler.schedule(timezone.now())
        except Exception as problem:
            errors.append(problem)
        finally:
            connection.close()

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == [] and Run.objects.count() == len(jobs)
    assert Transition.objects.filter(subject="job", to_state="PENDING").count() == len(jobs)


def test_a_host_that_is_removed_while_jobs_are_placed_holds_none(add_host, submit):
    """Either the host was removed first and the job waits, or the job was placed first and the host stays."""
    for number in range(8):
        host, job, barrier, refused = (
            add_host(f"h{number}").row,
            submit(place=False),
            threading.Barrier(2),
            [],
        )

        def remove(host=host, barrier=barrier, refused=refused):
            try:
                barrier.wait(30)
                remove_host(host, "root", timezone.now())
            except Refused as problem:
                refused.append(problem)
            finally:
                connection.close()

        thread = threading.Thread(target=remove)
        thread.start()
        barrier.wait(30)
        scheduler.schedule(timezone.now())
        thread.join(60)
        host.refresh_from_db()
        job.refresh_from_db()
        placed = Run.objects.filter(job=job, host=host).exists()
        assert (host.retired_at is None) == bool(refused) == placed == (job.state == "PENDING")
        Job.every.filter(pk=job.pk, state="QUEUED").update(cancel_requested_at=timezone.now())
        HostMaintenance.objects.create(host=host, cordoned=True)


@pytest.fixture
def during_a_pass(monkeypatch):
    """during_a_pass(act) → whether the act had returned while a pass, which has read all, had not placed yet."""
    honest, has_read, go_on = capacity.read_capacity, threading.Event(), threading.Event()

    def read_capacity(*args):
        found = honest(*args)
        has_read.set()
        go_on.wait(60)
        return found

    def in_thread(act):
        def work():
            try:
                act()
            finally:
                connection.close()

        return threading.Thread(target=work)

    def run(act):
        threads = [in_thread(lambda: scheduler.schedule(timezone.now())), in_thread(act)]
        monkeypatch.setattr(capacity, "read_capacity", read_capacity)
        threads[0].start()
        assert has_read.wait(60)
        threads[1].start()
        threads[1].join(1)
        went_ahead = not threads[1].is_alive()
        go_on.set()
        for thread in threads:
            thread.join(60)
        return went_ahead

    return run


def test_a_host_is_not_removed_in_the_middle_of_a_pass(add_host, submit, during_a_pass):
    """The pass has read that the host has room. It must not place anything on a host that left meanwhile."""
    host, job, refused = add_host().row, submit(place=False), []

    def remove():
        try:
            remove_host(host, "root", timezone.now())
        except Refused as problem:
            refused.append(problem)

    assert not during_a_pass(remove) and refused
    host.refresh_from_db()
    job.refresh_from_db()
    assert job.state == "PENDING" and host.retired_at is None


def test_a_location_is_not_bound_in_the_middle_of_a_pass(add_host, submit, project, during_a_pass):
    """The pass has read that the location serves the job's project. It places it before the admin is told that the
    location serves others, and never after."""
    add_host(cpus=1)
    job, other = submit(place=False), Project.objects.create(name="vision", created_at=timezone.now())
    placed_when_bound = []

    def bind():
        location_bindings.bind("default", [other.name], "root", timezone.now())
        placed_when_bound.append(Job.objects.get(pk=job.pk).state)

    assert not during_a_pass(bind)
    assert placed_when_bound == ["PENDING"]
    bound = LocationBinding.objects.values_list("project", flat=True)
    assert list(bound) == [other.pk], "the binding itself is not lost"


def test_a_job_is_not_moved_in_the_middle_of_a_pass(add_host, submit, during_a_pass):
    """The pass places the job. A move that comes meanwhile is refused: it does not say that a job that starts was moved
    in the queue."""
    add_host(cpus=1)
    job = submit(place=False)
    move, refused = Move((job.pk,), To.TOP), []
    seen = what_if(move, timezone.now())

    def act():
        try:
            reorder.move(move, seen.stamp, "root", timezone.now())
        except Refused as problem:
            refused.append(problem)

    assert not during_a_pass(act) and refused
    job.refresh_from_db()
    assert job.state == "PENDING" and not QueuePin.objects.exists()
    assert not Transition.objects.filter(kind="move").exists()


def test_a_cancel_that_meets_a_placement_wins(add_host, submit):
    add_host(cpus=100)
    jobs = [submit(place=False) for _ in range(10)]
    crowd = Crowd()
    crowd.go(lambda: scheduler.schedule(timezone.now()), pause_s=0)
    try:
        for job in jobs:
            services.cancel(job, "alice", timezone.now())
    finally:
        crowd.stop()
    assert crowd.errors == []
    for job in Job.objects.all():
        assert job.state == "CANCELLED" or not Run.objects.filter(job=job, stop_wanted_at=None).exists()
