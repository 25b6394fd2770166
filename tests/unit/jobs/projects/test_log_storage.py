"""The logs that a project stores are limited: at the limit it takes no new job, and no log is cut."""

from __future__ import annotations

import pytest
from django.utils import timezone

from agents.infra import shared_answers
from agents.infra.refusals import Exhausted, Refused
from jobs import services
from jobs.models import Job, LogGap, Run
from jobs.projects import quotas
from jobs.projects.quotas import QuotaTarget
from jobs.rules.lifecycle.states import JobState
from jobs.rules.scheduling.quota import Metric
from tests.unit.jobs.conftest import spec
from tests.unit.jobs.fake_hosts import settle


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
