"""The logs that a project stores are limited: it is told before, takes no new job at the limit, and no log is cut."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from agents.infra import shared_answers
from agents.infra.clock import Clock
from agents.infra.refusals import Exhausted, Refused
from agents.links.control_plane import Arrival
from jobs import services, sweep
from jobs.host_sync import intake, wanted
from jobs.host_sync.apply_reports import UnreadableFrames
from jobs.host_sync.fast_append import FastAppender
from jobs.models import Job, LogGap, LogPiece, LogStorage, Membership, Notification, Role, Run
from jobs.notifications import targets
from jobs.projects import log_storage, projects, quotas
from jobs.projects.quotas import QuotaTarget
from jobs.rules.lifecycle.states import JobState
from jobs.rules.scheduling.quota import Metric
from jobs.scheduling import scheduler
from tests.unit.jobs.conftest import spec
from tests.unit.jobs.fake_hosts import frame, settle


def limit(project, value, **whose):
    quotas.set_limit(QuotaTarget(project, **whose), Metric.LOG_GB, "", value, "root", timezone.now())


def stored(job, size):
    Run.objects.filter(job=job).update(log_stored=size)
    shared_answers.forget_all()


def test_at_the_limit_new_jobs_are_refused_with_the_cure_and_running_ones_go_on(
    add_host, project, submit, control_plane
):
    host = add_host()
    limit(project, 0.5)
    job = submit()
    settle(control_plane, host)
    stored(job, 499_999_999)
    submit()
    stored(job, 500_000_000)
    with pytest.raises(Exhausted) as refused:
        submit()
    assert refused.value.field == "project"
    assert refused.value.message.startswith(
        "The logs of project default take 0.50 GB, and it may store 0.5 GB. Delete jobs that are over"
    )
    job.refresh_from_db()
    assert job.state == JobState.RUNNING


def test_the_logs_of_deleted_jobs_and_of_other_projects_do_not_count(
    add_host, project, alice, submit, control_plane
):
    host = add_host()
    limit(project, 0.5)
    job = submit()
    settle(control_plane, host)
    stored(job, 10**9)
    services.cancel(Job.objects.get(), "root", timezone.now())
    settle(control_plane, host)
    stored(job, 10**9)
    assert quotas.stored_log_bytes(project) == 10**9
    services.delete(Job.objects.get(pk=job.pk), "root", timezone.now())
    shared_answers.forget_all()
    assert quotas.stored_log_bytes(project) == 0
    assert submit().pk


def test_what_is_missing_of_a_log_takes_no_place(add_host, project, submit, control_plane):
    """A program makes a gap of terabytes with one call, which may not lock its project."""
    host = add_host()
    limit(project, 0.5)
    job = submit()
    settle(control_plane, host)
    run = Run.objects.get(job=job)
    size = 1 << 43
    LogGap.objects.create(run=run, start=1000, end=size, reason="a hole")
    # A part of this gap is not reached yet, and the other one not at all.
    LogGap.objects.create(run=run, start=size + 50, end=size + 300, reason="a hole")
    LogGap.objects.create(run=run, start=size + 500, end=size * 2, reason="a hole")
    stored(job, size + 100)
    assert quotas.stored_log_bytes(project) == 1050
    assert submit().pk
    stored(job, size + 300 + 5 * 10**8)
    LogGap.objects.filter(start__gt=size + 50).delete()
    with pytest.raises(Exhausted):
        submit()


def test_a_request_that_made_its_job_before_gets_it_again_at_the_limit(add_host, project, submit):
    add_host()
    job = submit(request_id="once")
    stored(job, 10**9)
    limit(project, 0)
    assert submit(request_id="once").pk == job.pk
    with pytest.raises(Exhausted):
        submit(spec(), request_id="twice")


def test_the_limit_is_for_a_project_as_a_whole(project, alice):
    for whose in ({"each": True}, {"user": alice}):
        with pytest.raises(Refused, match="for the project as a whole"):
            limit(project, 1, **whose)


def test_a_limit_on_logs_holds_up_no_waiting_job(project, submit, add_host, control_plane):
    limit(project, 1)
    job = submit()
    assert quotas.read_ledger(timezone.now()).projects == {}
    host = add_host()
    settle(control_plane, host)
    job.refresh_from_db()
    assert job.state in (JobState.QUEUED, JobState.PENDING, JobState.RUNNING)


@pytest.fixture
def running(add_host, submit, control_plane):
    """A job that runs on a host, in a project that may store one GB."""
    host = add_host()
    job = submit()
    settle(control_plane, host)
    limit(job.project, 1)
    return host, job


def sweep_after(seconds, now=None):
    """What the sweep does about stored logs, so many seconds from now."""
    sweep.measure_logs(Clock((now or timezone.now()) + timedelta(seconds=seconds)))
    shared_answers.forget_all()


def told():
    return list(Notification.objects.order_by("pk").values_list("text__data__percent", flat=True))


def test_each_level_is_told_once_to_the_project_and_its_admins(running, alice, project):
    _, job = running
    Membership.objects.filter(user=alice).update(role=Role.ADMIN)
    other = User.objects.create_user("bob")
    Membership.objects.create(project=project, user=other, role=Role.SUBMITTER)
    for owner in (project, alice, other):
        targets.add(owner, "hook", "https://a.example/x", ["log_storage"], 4, "alice", timezone.now())
    for step, (size, percents) in enumerate(
        [
            (799, []),
            (800, [80]),
            (850, [80]),
            (790, [80]),
            (810, [80]),
            (700, [80]),
            (960, [80, 95]),
            (1300, [80, 95, 125]),
            (1300, [80, 95, 125]),
        ]
    ):
        stored(job, size * 10**6)
        sweep_after(11 * step)
        assert sorted(told()) == sorted(percents * 2), size
    # It fell to 70 % between the two, so 80 % was reached twice; the second time it was passed on the way to 95 %.
    assert Notification.objects.filter(target__user=other).count() == 0
    first = Notification.objects.earliest("pk")
    assert first.text["title"] == "Project default: its logs have reached 80 % of their limit"
    assert first.text["url"].endswith("/projects/default/") or first.text["url"] == ""


def test_beyond_the_last_level_the_host_keeps_the_log_until_there_is_room(running):
    host, job = running
    run = Run.objects.get(job=job)
    stored(job, 10**9 * 5 // 4)
    sweep_after(0)
    here = 10**9 * 5 // 4
    LogPiece.objects.all().delete()
    arrivals = [Arrival(run.pk, frame(here, b"more"))]

    def take():
        return intake.take(host.row.pk, 7, arrivals, timezone.now(), UnreadableFrames())

    quick = FastAppender()
    quick.learn({run.pk: here})
    assert quick.take(host.row.pk, 7, arrivals) is None
    assert run.pk not in take().acks and not LogPiece.objects.exists()
    assert wanted.wanted(host.row.pk)[run.pk].pull_from is None
    run.refresh_from_db()
    assert log_storage.held_text(run).startswith(f"Storing stopped at byte {here}: ")
    limit(job.project, 2)
    sweep_after(11)
    assert wanted.wanted(host.row.pk)[run.pk].pull_from == here
    assert take().acks == {run.pk: here + 4} and LogPiece.objects.count() == 1
    assert log_storage.held_text(run) == "" and log_storage.warning(job.project) == ""


def test_other_projects_and_a_limit_that_is_taken_away_hold_nothing(running, alice, submit, control_plane):
    host, job = running
    free = projects.create("free", "", "root", timezone.now())
    Membership.objects.create(project=free, user=alice, role=Role.SUBMITTER)
    other = services.submit(free, alice, spec(), "default", None, timezone.now())
    scheduler.schedule(timezone.now())
    settle(control_plane, host)
    stored(job, 2 * 10**9)
    sweep_after(0)
    assert log_storage.held_runs() == {Run.objects.get(job=job).pk}
    assert wanted.wanted(host.row.pk)[Run.objects.get(job=other).pk].pull_from is not None
    limit(job.project, None)
    sweep_after(11)
    assert log_storage.held_runs() == frozenset() and not LogStorage.objects.exists()
