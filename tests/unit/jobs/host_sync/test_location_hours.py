"""The sums of GPUs that were held, by hour and location: equal to what runs held, written once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db.models import Sum

from agents.models import Host, Location
from jobs.host_sync import location_hours
from jobs.models import Job, LocationHour, Run, Usage
from tests.unit.jobs.conftest import gang, pool_of

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)
NOW = datetime(2026, 11, 20, 12, 30, tzinfo=UTC)


@pytest.fixture
def held(add_host, submit):
    """One run holds two GPUs since 09:45; another held two of the other location from 01:30 to 03:15."""
    add_host("a", gpus=2)
    first = submit(gang(pool_of(gpus=2)))
    add_host("b", gpus=4, location="east")
    Host.objects.filter(name="b").update(location=Location.objects.get(name="default"))
    second = submit(gang(pool_of(gpus=2)))
    Host.objects.filter(name="b").update(location=Location.objects.get(name="east"))
    live, over = Run.objects.get(job=first), Run.objects.get(job=second)
    begun, ended = NOW.replace(hour=1), NOW.replace(hour=3, minute=15)
    Run.objects.filter(pk=live.pk).update(created_at=NOW.replace(hour=9, minute=45))
    Run.objects.filter(pk=over.pk).update(created_at=begun, released_at=ended)
    over.gpu_claims.update(released_at=ended)
    Usage.objects.create(
        run=over, job=second, project=second.project, owner_name="alice", accelerator_type="NVIDIA_L4",
        gpus=2, cpus=1, began_at=begun, ended_at=ended,
    )  # fmt: skip
    assert Job.objects.count() == 2


def hours(location):
    rows = LocationHour.objects.filter(location__name=location, held_s__gt=0).order_by("start")
    return [(row.start.hour, row.gpus, row.held_s) for row in rows]


def test_they_are_what_runs_held_in_each_hour(held):
    location_hours.sum_hours(NOW)
    assert hours("default") == [(9, 2, 2 * 900), (10, 2, 2 * 3600), (11, 2, 2 * 3600)]
    assert hours("east") == [(1, 4, 2 * 1800), (2, 4, 2 * 3600), (3, 4, 2 * 900)]
    assert not LocationHour.objects.filter(start__gte=NOW.replace(minute=0)).exists(), "it is not over"


def test_an_hour_is_written_once_and_a_later_sweep_writes_the_next(held):
    location_hours.sum_hours(NOW)
    first = hours("default")
    Run.objects.filter(released_at=None).update(created_at=NOW - timedelta(minutes=15))
    location_hours.sum_hours(NOW + HOUR)
    assert hours("default") == [*first, (12, 2, 2 * 2700)]
    location_hours.sum_hours(NOW + HOUR * 2 - timedelta(minutes=28))
    assert len(hours("default")) == 4, "reports of the hour that is just over may still come"


def test_the_first_time_three_months_are_summed_and_old_hours_go(held):
    location = Location.objects.get(name="default")
    LocationHour.objects.create(start=NOW - timedelta(days=401), location=location, gpus=1, held_s=5)
    location_hours.sum_hours(NOW)
    rows = LocationHour.objects.filter(location=location)
    assert rows.count() == 24 * 92 and rows.earliest("start").start == NOW.replace(minute=0) - 92 * 24 * HOUR
    total = LocationHour.objects.aggregate(Sum("held_s"))["held_s__sum"]
    assert total == 2 * (900 + 7200) + 2 * (1800 + 3600 + 900)
