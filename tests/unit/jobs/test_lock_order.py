"""Jobs are locked in the order of their ids, and before runs, by everybody: another order is a deadlock on PostgreSQL.

One side of each race stops between two locks that it takes in that order, or at the statement that would take one out
of it. The other acts meanwhile. In a circle PostgreSQL ends one of them, which the result shows.
"""

from __future__ import annotations

from functools import partial

import pytest
from django.db import connection
from django.utils import timezone

from agents.infra.clock import Clock
from agents.links.control_plane import Arrival, Sample
from agents.models import Host, HostStatus, Recovery
from jobs import idle_rule
from jobs.host_sync import intake, recovery_mode
from jobs.host_sync.apply_reports import UnreadableFrames
from jobs.lifecycle import advance, snapshot
from jobs.logs import verify
from jobs.metrics import points
from jobs.models import Job, Run
from jobs.rules.scheduling.reorder import Move, To
from jobs.scheduling import reorder, scheduler
from jobs.scheduling.what_if import what_if
from tests.harness.races import race
from tests.unit.jobs.conftest import spec
from tests.unit.jobs.fake_hosts import settle
from tests.unit.jobs.test_forced_races import kinds, whole

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(240)]

DONE = ["done", "done"]
# SQLite has no locks of rows, and one writer at a time.
LOCK = " FOR NO KEY UPDATE" if connection.vendor == "postgresql" else ""


def one_by_one(lock, first, second):
    """Lock a row, and then the next one: the race stops it in between."""

    def locks():
        lock(ids=[first])
        lock(ids=[second])

    return whole(locks)


def reversed_on_disk(rows):
    """Two rows of a small table, of which a statement over all of them comes to the second one first."""
    first, second = rows.order_by("pk").values_list("pk", flat=True)
    for _ in range(50):
        rows.filter(pk=first).update(created_at=timezone.now())  # it is written anew, mostly behind the other
        if on_disk(rows.model) != [first, second]:
            return first, second
    raise AssertionError("the rows lie in the order of their ids")


def on_disk(model):
    if connection.vendor == "sqlite":
        return []
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT id FROM {model._meta.db_table} ORDER BY ctid")  # noqa: S608
        return [pk for (pk,) in cursor]


def test_a_sample_after_which_its_job_is_decided_about_anew_locks_the_job_before_the_run(
    add_host, submit, control_plane
):
    host, job = add_host(), submit()
    settle(control_plane, host)
    run = Run.objects.get()
    sample = [Arrival(run.pk, Sample(1.0, 100, {}, 5))]
    Job.objects.update(cancel_requested_at=timezone.now(), cancel_requested_by="alice")
    store = partial(intake.take, host.row.pk, 7, sample, timezone.now(), UnreadableFrames())
    stop = partial(advance.advance, [job.pk], Clock())
    assert kinds(race(store, stop, before="UPDATE jobs_job due_at")) == DONE
    run.refresh_from_db()
    assert run.stop_wanted_at and run.sampled_at


def test_a_pass_locks_what_it_places_and_what_waits_in_one_order(add_host, submit):
    add_host(gpus=1)
    submit(spec(gpus=1))
    waits, fits = submit(spec(gpus=1), place=False), submit(place=False)
    assert waits.pk < fits.pk
    both = whole(snapshot.hold_jobs, ids=[waits.pk, fits.pk])
    place = partial(scheduler.schedule, timezone.now())
    assert kinds(race(place, both, before="UPDATE jobs_job reason earliest_start_at version")) == DONE
    waits.refresh_from_db(), fits.refresh_from_db()
    assert fits.state == "PENDING" and waits.reason


def begin_recovery():
    Recovery.objects.create(since=timezone.now(), why="a backup was restored")


ACTS = {
    "idle": lambda project: idle_rule.set_rule(project, 10, False, "root", timezone.now()),
    "recovery": lambda project: recovery_mode.confirm([], "root", timezone.now()),
    "move": lambda project: to_the_top(),
}


def to_the_top():
    move = Move(tuple(Job.objects.order_by("pk").values_list("pk", flat=True)), To.TOP, None, None)
    reorder.move(move, what_if(move, timezone.now()).stamp, "root", timezone.now())


@pytest.mark.parametrize("act", ACTS)
def test_an_act_on_many_jobs_locks_them_in_the_order_of_their_ids(act, add_host, submit, project):
    add_host("h1", gpus=1)
    [submit(spec(gpus=1), place=False) for _ in range(2)]
    Host.objects.update(status=HostStatus.UNREACHABLE)
    if act == "idle":
        Job.objects.update(state="RUNNING")
    if act == "recovery":
        begin_recovery()
    first, second = reversed_on_disk(Job.every)
    locks = one_by_one(snapshot.hold_jobs, first, second)
    acts = partial(ACTS[act], project)
    assert kinds(race(locks, acts, after=f"SELECT jobs_job{LOCK}")) == DONE


OF_RUNS = {
    "missing": lambda runs: recovery_mode.mark_missing(runs, timezone.now()),
    "metrics": lambda runs: points.give_up(Run.objects.filter(pk__in=runs)),
    "deleted": lambda runs: verify.verify_logs(runs, timezone.now()),
}


@pytest.mark.parametrize("act", OF_RUNS)
def test_an_act_on_many_runs_locks_them_in_the_order_of_their_ids(act, add_host, submit):
    add_host(cpus=16)
    [submit() for _ in range(2)]
    if act == "deleted":
        Job.objects.update(deleted_at=timezone.now())
    first, second = reversed_on_disk(Run.objects)
    locks = one_by_one(snapshot.lock_runs, first, second)
    acts = partial(OF_RUNS[act], [first, second])
    assert kinds(race(locks, acts, after=f"SELECT jobs_run{LOCK}")) == DONE
