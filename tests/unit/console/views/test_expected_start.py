"""On what an expected start stands, when none is told, and how the queue and the page of a job say it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from django.utils import timezone

from console.presenters.jobs import job_parts
from console.presenters.queue.expected_start import BOTH, LIMITS, USUAL, Expected, expected_start
from jobs.models import ExpectedStart, Job
from tests.unit.console.views.example_rows import a_job

NOW = timezone.now()
SOON, LATER, LAST = (NOW + timedelta(hours=hours) for hours in (1, 2, 3))


@pytest.mark.parametrize(
    ("usual", "limit", "reserved", "told"),
    [
        (None, None, None, None),
        (None, LATER, None, Expected(LATER, LATER, LIMITS)),
        (SOON, LATER, None, Expected(SOON, LATER, BOTH)),
        (SOON, None, None, Expected(SOON, SOON, USUAL)),
        (None, None, LATER, Expected(LATER, LATER, LIMITS)),
        # The reservation holds whatever was simulated: one end, never two.
        (SOON, LAST, LATER, Expected(SOON, LATER, BOTH)),
        (LAST, LAST, LATER, Expected(LATER, LATER, LIMITS)),
        (None, NOW - timedelta(minutes=6), None, None),
    ],
)
def test_what_is_told(usual, limit, reserved, told):
    row = SimpleNamespace(usual_at=usual, limit_at=limit)
    assert expected_start(SimpleNamespace(earliest_start_at=reserved), row) == told


def test_a_job_that_was_not_simulated_has_what_is_reserved_for_it():
    assert expected_start(SimpleNamespace(earliest_start_at=LATER), None) == Expected(LATER, LATER, LIMITS)
    assert expected_start(SimpleNamespace(earliest_start_at=None), None) is None


@pytest.fixture
def job(project, cast):
    return a_job(project, cast.bob, state="QUEUED", name="waits", reason="Waits for its turn.")


@pytest.mark.parametrize("page", ["/jobs/queue", "/jobs/{pk}/"])
def test_the_pages_say_on_what_it_stands(browser, job, page):
    bob, address = browser("bob"), page.format(pk=job.pk)
    assert "not known" in bob.get(address).content.decode()
    soon, late = (datetime(2099, 1, 1, hour, tzinfo=UTC) for hour in (14, 18))
    ExpectedStart.objects.create(job=job, usual_at=soon, limit_at=late)
    said = " ".join(bob.get(address).content.decode().split())
    assert "2099-01-01T14:00:00" in said and "if jobs run as long as such jobs did lately" in said
    assert "2099-01-01T18:00:00" in said and "if jobs run to their limits" in said
    Job.objects.filter(pk=job.pk).update(rests_until=soon)
    said = " ".join(bob.get(address).content.decode().split())
    assert "not before" in said and "if jobs run" not in said


def test_the_head_of_a_job_is_sent_again_when_its_expected_start_changes(job):
    before = job_parts.PARTS["job-head"].stamp(job.pk)
    ExpectedStart.objects.create(job=job, limit_at=LATER)
    assert job_parts.PARTS["job-head"].stamp(job.pk) != before
