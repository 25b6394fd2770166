"""What a dispatcher reads before it sends orders to a host: the wanted runs, and the start orders with them."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agents.models import Host
from jobs import services
from jobs.models import Run
from jobs.scheduling.scheduler import schedule

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(add_host, submit):
    add_host("h1")
    submit()
    schedule(timezone.now())
    return Run.objects.get()


def test_a_start_order_comes_with_the_wanted_runs_until_it_was_sent(run, control_plane):
    assert control_plane.wanted_runs(run.host_id)[run.pk].order == run.order
    assert control_plane.wanted_runs(run.host_id, ["another"])[run.pk].order == run.order
    assert control_plane.wanted_runs(run.host_id, [run.pk])[run.pk].order is None
    assert control_plane.wanted_runs(run.host_id, [run.pk, "another"])[run.pk].order is None


def test_a_run_that_is_to_be_stopped_or_was_started_has_no_start_order(run, control_plane):
    Run.objects.update(phase="claimed")
    assert control_plane.wanted_runs(run.host_id)[run.pk].order is None
    Run.objects.update(phase="created")
    services.cancel(run.job, "ada", timezone.now())
    wanted = control_plane.wanted_runs(run.host_id)[run.pk]
    assert wanted.stop and wanted.order is None


def test_a_host_on_which_nothing_is_unusual_costs_two_statements(run, control_plane):
    """A dispatcher asks this several times for each job."""
    control_plane.wanted_runs(run.host_id)
    with CaptureQueriesContext(connection) as asked:
        assert list(control_plane.wanted_runs(run.host_id)) == [run.pk]
    assert len(asked) == 2


def test_a_run_on_a_host_that_is_out_of_service_is_still_stopped(run, control_plane):
    """Nothing is in doubt about it, as in recovery mode, where nothing is stopped."""
    Run.objects.update(stop_wanted_at=timezone.now())
    Host.every.update(retired_at=timezone.now())
    assert control_plane.wanted_runs(run.host_id)[run.pk].stop
