"""When waiting jobs are expected to start: what is written, on what it stands, and what is not known."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs.models import ExpectedStart, Job
from jobs.rules.scheduling.policy import AFTER_TIMEOUT_S
from jobs.scheduling import expected_starts
from tests.unit.jobs.conftest import gang, pool_of

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)


@pytest.fixture(autouse=True)
def rested(monkeypatch):
    monkeypatch.setattr(expected_starts, "REST", 0.0)
    monkeypatch.setattr(expected_starts, "_rests_until", 0.0)


def of_minutes(minutes, gpus=4):
    document = gang(pool_of(gpus=gpus))
    document["jobSpec"]["scheduling"] = {"timeout": f"{minutes * 60}s"}
    return document


@pytest.fixture
def queue(add_host, submit):
    """One host of four GPUs: the first job holds all of them, two wait."""
    add_host(cpus=8, gpus=4)
    began = timezone.now()
    jobs = [submit(of_minutes(60)) for _ in range(3)]
    assert [job.state for job in jobs] == ["PENDING", "QUEUED", "QUEUED"]
    Job.objects.filter(pk=jobs[0].pk).update(state="RUNNING", started_at=began)
    return began, jobs


def kept(now):
    expected_starts.keep_expected_starts(now)
    return {row.job_id: row for row in ExpectedStart.objects.all()}


def past(job, minutes, number=3):
    """So many jobs of the same kind that succeeded after so many minutes."""
    row = Job.objects.get(pk=job.pk)
    for n in range(number):
        row.pk, row.state, row.request_id = job.pk - 1_000 - n, "SUCCEEDED", None
        row.started_at = timezone.now() - timedelta(days=1)
        row.ended_at = row.started_at + minutes * MINUTE
        row.save(force_insert=True)


def near(one, other):
    return timedelta() <= one - other <= MINUTE


def test_without_known_durations_a_start_stands_on_the_limits(queue):
    began, (_, second, third) = queue
    found = kept(began + MINUTE)
    limit = timedelta(hours=1, seconds=AFTER_TIMEOUT_S)
    assert near(found[second.pk].limit_at, began + limit) and near(
        found[third.pk].limit_at, began + 2 * limit
    )
    assert {row.usual_at for row in found.values()} == {None} and len(found) == 2


def test_what_is_known_of_such_jobs_makes_a_start_sooner(queue):
    began, (first, second, third) = queue
    past(first, 10)
    found = kept(began + MINUTE)
    assert near(found[second.pk].usual_at, began + 10 * MINUTE)
    assert near(found[third.pk].usual_at, began + 20 * MINUTE)
    assert found[third.pk].limit_at > began + 120 * MINUTE


def test_a_job_that_ran_longer_than_all_of_its_kind_counts_to_its_limit(queue):
    began, (first, second, _) = queue
    past(first, 10)
    assert near(kept(began + 30 * MINUTE)[second.pk].usual_at, began + timedelta(minutes=60, seconds=120))


def test_jobs_of_another_person_or_size_say_nothing(queue):
    began, (first, _, _) = queue
    past(first, 10)
    Job.objects.filter(state="SUCCEEDED").update(owner=User.objects.create_user("other"))
    assert {row.usual_at for row in kept(began + MINUTE).values()} == {None}


def test_two_are_too_few_to_conclude_from(queue):
    began, (first, _, _) = queue
    past(first, 10, number=2)
    assert {row.usual_at for row in kept(began + MINUTE).values()} == {None}


def test_a_job_that_fits_no_host_that_is_up_has_no_start(queue, add_host, submit):
    began, _ = queue
    host = add_host("h2", cpus=8, gpus=8)
    large = submit(of_minutes(60, gpus=8), place=False)
    type(host.row).objects.filter(pk=host.row.pk).update(status="UNREACHABLE")
    assert large.pk not in kept(began + MINUTE)


def test_rows_of_jobs_that_wait_no_more_go(queue):
    began, (_, second, third) = queue
    kept(began + MINUTE)
    Job.objects.filter(pk=second.pk).update(state="CANCELLED", ended_at=began)
    assert set(kept(began + MINUTE)) == {third.pk}
    Job.objects.filter(pk=third.pk).update(state="CANCELLED", ended_at=began)
    assert kept(began + MINUTE) == {}


def test_an_unchanged_queue_writes_nothing(queue):
    began, _ = queue
    kept(began + MINUTE)
    with CaptureQueriesContext(connection) as asked:
        expected_starts.keep_expected_starts(began + MINUTE)
    assert [query["sql"] for query in asked if not query["sql"].startswith("SELECT")] == []


def test_a_process_rests_for_as_many_times_as_a_simulation_took(queue, monkeypatch):
    began, (_, second, _) = queue
    monkeypatch.setattr(expected_starts, "REST", 1e9)
    kept(began + MINUTE)
    ExpectedStart.objects.all().delete()
    assert kept(began + MINUTE) == {}
    monkeypatch.setattr(expected_starts, "_rests_until", 0.0)
    assert second.pk in kept(began + MINUTE)
