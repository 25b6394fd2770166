"""Metrics in logs: each line once, wherever the log was cut, and only those that the job asks for."""

from __future__ import annotations

import pytest
from django.utils import timezone

from agents.links.control_plane import Arrival, Fact
from jobs.host_sync import intake
from jobs.host_sync.apply_reports import UnreadableFrames
from jobs.metrics import logged, points
from jobs.models import MetricPoint, MetricSeries, Run
from jobs.rules.metrics.journal import Report
from tests.unit.jobs.conftest import spec
from tests.unit.jobs.fake_hosts import frame
from tests.unit.jobs.metrics.test_metrics import CLOSED

pytestmark = pytest.mark.django_db
LINES = b"".join(b"step=%d loss=%d.5\nnothing here\n" % (step, step) for step in range(1, 21))


@pytest.fixture
def host(add_host, submit):
    host = add_host()
    document = spec()
    [pool] = document["jobSpec"]["workerPoolSpecs"] if "jobSpec" in document else document["workerPoolSpecs"]
    pool["containerSpec"]["env"] = [{"name": "TRAINYARD_LOG_METRICS", "value": "loss,other"}]
    submit(document)
    return host


def take(host, *what):
    run = Run.objects.get().pk
    intake.take(host.row.pk, 7, [Arrival(run, each) for each in what], timezone.now(), UnreadableFrames())


@pytest.mark.parametrize("cut", [1, 9, 200, len(LINES) - 1])
def test_each_line_counts_once_wherever_the_log_is_cut(host, cut):
    for start in range(0, len(LINES), cut):
        take(host, frame(start, LINES[start : start + cut]))
        if cut > 1 or start % 50 == 0:
            logged.read_due(timezone.now())
    logged.read_due(timezone.now())
    series = MetricSeries.objects.get()
    assert (series.name, series.source, series.reports, series.value) == ("loss", "log", 20, 20.5)
    assert list(MetricPoint.objects.order_by("step").values_list("step", flat=True)) == list(range(1, 21))
    assert Run.objects.get().metrics_read == len(LINES)


def test_the_last_line_counts_when_the_log_is_whole(host):
    take(host, frame(0, b"loss=1\nloss=2"))
    logged.read_due(timezone.now())
    assert MetricSeries.objects.get().reports == 1
    take(host, Fact(CLOSED | {"metrics": False, "log": {"size": 13, "final": True, "digest": None}}))
    logged.read_due(timezone.now())
    assert list(MetricPoint.objects.order_by("step").values_list("step", "value")) == [(0, 1.0), (1, 2.0)]


def test_a_metric_that_is_reported_in_another_way_is_left_out(host):
    now = timezone.now()
    points.add(
        Run.objects.get().pk, {("loss", "hypertune"): [Report("hypertune", "loss", 1, 9.0, 1.7e9)]}, now
    )
    take(host, frame(0, b"loss=1 other=2\n"))
    logged.read_due(now)
    found = MetricSeries.objects.order_by("name").values_list("name", "source")
    assert list(found) == [("loss", "hypertune"), ("other", "log")]


def test_a_job_that_does_not_ask_is_not_read(add_host, submit):
    host = add_host()
    submit()
    take(host, frame(0, LINES))
    logged.read_due(timezone.now())
    assert Run.objects.get().metrics_read is None and not MetricSeries.objects.exists()
