"""Metrics in logs: each line once, wherever the log was cut, and only those that the job asks for."""

from __future__ import annotations

import pytest
from django.utils import timezone

from agents.infra.clock import Clock
from agents.links.control_plane import Arrival, Fact, Gap
from jobs import services
from jobs.host_sync import intake
from jobs.host_sync.apply_reports import UnreadableFrames
from jobs.lifecycle import advance
from jobs.metrics import logged, points
from jobs.models import Job, MetricPoint, MetricSeries, Run
from jobs.rules.metrics.journal import Report
from tests.unit.jobs.conftest import spec
from tests.unit.jobs.fake_hosts import frame
from tests.unit.jobs.metrics.test_metrics import CLOSED

pytestmark = pytest.mark.django_db
LINES = b"".join(b"step=%d loss=%d.5\nnothing here\n" % (step, step) for step in range(1, 21))


def closed_at(size):
    return Fact(CLOSED | {"metrics": False, "log": {"size": size, "final": True, "digest": None}})


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
    take(host, closed_at(len(LINES)))
    logged.read_due(timezone.now())
    assert Run.objects.get().metrics_read is None, "nobody has to look at it again"
    logged.read_due(timezone.now())
    assert MetricSeries.objects.get().reports == 20


def test_the_last_line_counts_when_the_log_is_whole(host):
    take(host, frame(0, b"loss=1\nloss=2"))
    logged.read_due(timezone.now())
    assert MetricSeries.objects.get().reports == 1
    take(host, closed_at(13))
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


def values():
    return list(MetricPoint.objects.order_by("step").values_list("value", flat=True))


def test_bytes_that_cannot_be_read_for_metrics_hold_up_nothing(host, monkeypatch, caplog):
    """What fails once fails each time: it is left out, and what follows is read."""
    real = logged.values_in

    def values_in(line, names):
        if "bad" in line:
            raise ValueError("no such line")
        return real(line, names)

    monkeypatch.setattr(logged, "values_in", values_in)
    take(host, frame(0, b"loss=1\nloss=2 bad\n"))
    logged.read_due(timezone.now())
    assert Run.objects.get().metrics_read == 18 and values() == []
    assert "are left out of its metrics" in caplog.text
    take(host, frame(18, b"loss=3\n"))
    logged.read_due(timezone.now())
    assert values() == [3.0]


def test_a_line_of_thousands_of_digits_counts_for_nothing(host):
    take(host, frame(0, b"loss=1\n{'loss': 0x" + b"f" * 5000 + b"}\nloss=2\n"))
    logged.read_due(timezone.now())
    assert values() == [1.0, 2.0]


def test_a_line_that_ends_in_a_gap_holds_up_nothing(host):
    take(host, frame(0, b"loss=1\nloss=2"), Gap(13, 500, "lost"), frame(500, b"loss=3\n"))
    logged.read_due(timezone.now())
    assert values() == [1.0, 2.0, 3.0]


def test_a_long_log_is_read_on_as_long_as_there_is_time(host, monkeypatch):
    monkeypatch.setattr(logged, "READ_BYTES", 64)
    take(host, frame(0, LINES))
    logged.read_due(timezone.now())
    assert Run.objects.get().metrics_read == len(LINES) and len(values()) == 20


def test_a_long_log_keeps_no_other_waiting(add_host, submit, monkeypatch):
    """Each has its turn, whatever comes first; and no turn is longer than others."""
    monkeypatch.setattr(logged, "READ_BYTES", 64)
    host = add_host(cpus=64)
    document = spec()
    env = [{"name": "TRAINYARD_LOG_METRICS", "value": "loss"}]
    document["jobSpec"]["workerPoolSpecs"][0]["containerSpec"]["env"] = env
    submit(document)
    submit(document)
    first, second = Run.objects.order_by("pk")
    arrivals = [Arrival(first.pk, frame(0, LINES)), Arrival(second.pk, frame(0, LINES))]
    intake.take(host.row.pk, 7, arrivals, timezone.now(), UnreadableFrames())
    turns = iter(range(100))
    monkeypatch.setattr(logged, "SLICE_S", 4)
    logged.read_due(timezone.now(), clock=lambda: next(turns))
    read = list(Run.objects.values_list("metrics_read", flat=True))
    assert min(read) > 0 and max(read) <= 2 * 64, read


def test_of_a_deleted_job_nothing_is_read_any_more(host, control_plane):
    take(host, frame(0, LINES), closed_at(len(LINES)))
    job = Job.objects.get()
    advance.advance([job.pk], Clock())
    services.delete(Job.objects.get(), "alice", timezone.now())
    run = Run.objects.get()
    assert (run.metrics_read, run.metrics_proof) == (None, "none")
    logged.read_due(timezone.now())
    assert not MetricSeries.objects.exists()
