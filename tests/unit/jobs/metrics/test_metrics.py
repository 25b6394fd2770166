"""What hosts send of the metrics of runs: stored once and in order, bounded, and compared with the host's hash."""

from __future__ import annotations

import json
import zlib
from importlib import import_module
from types import SimpleNamespace

import pytest
from django.apps import apps
from django.db import connection
from django.utils import timezone

from agents.links.control_plane import Arrival, Fact, MetricsEnd, MetricsPiece
from jobs.host_sync import intake, wanted
from jobs.host_sync.apply_reports import UnreadableFrames
from jobs.metrics import points
from jobs.models import MetricPoint, MetricSeries, Run
from jobs.rules.metrics import journal
from jobs.rules.metrics.thinning import kept

pytestmark = pytest.mark.django_db
CLOSED = {"phase": "closed", "boot_id": "b", "started_at": 1e9, "ended_at": 1e9 + 5, "closed_at": 1e9 + 6}
CLOSED |= {"exit_code": 0, "why": "exit", "seconds": 5.0, "log": {"size": 0, "final": True, "digest": None}}


def line(step, value, name="loss", source="file", at=1.7e9):
    return json.dumps([source, name, step, value, at], separators=(",", ":")).encode() + b"\n"


@pytest.fixture
def host(add_host, submit):
    host = add_host()
    submit()
    return host


def take(host, *what):
    run = Run.objects.get().pk
    arrivals = [Arrival(run, each) for each in what]
    return intake.take(host.row.pk, 7, arrivals, timezone.now(), UnreadableFrames())


def piece(start, data, z=True):
    return MetricsPiece(start, start + len(data), z, zlib.compress(data) if z else data)


def wants(host):
    return wanted.wanted(host.row.pk)[Run.objects.get().pk]


def test_pieces_are_stored_once_and_in_order_and_proved(host):
    first, second = line(1, 0.5) + line(2, 0.25), line(3, "NaN") + line(1, 0.75)
    assert wants(host).metrics_from == 0
    take(host, piece(len(first), second))  # too early
    assert not MetricSeries.objects.exists()
    take(host, piece(0, first), piece(0, first, z=False), piece(len(first), second))
    assert wants(host).metrics_from == len(first + second)
    series = MetricSeries.objects.get()
    assert (series.name, series.reports, series.step, series.odd) == ("loss", 4, 3, "NaN")
    assert (series.lowest, series.highest) == (0.25, 0.75)
    rows = list(MetricPoint.objects.order_by("step").values_list("step", "value", "odd"))
    assert rows == [(1, 0.75, ""), (2, 0.25, ""), (3, None, "NaN")]
    chain = journal.chained("", (first + second).splitlines(keepends=True))
    end = MetricsEnd(len(first + second), chain)
    take(host, end)
    assert Run.objects.get().metrics_proof == "", "the run is not closed"
    take(host, Fact(CLOSED | {"metrics": True}), end)
    assert Run.objects.get().metrics_proof == "whole" and wants(host).metrics_from is None


def test_runs_that_hosts_forgot_before_metrics_were_there_reported_none(host):
    """After the upgrade nobody would ever say so, and their page would wait for reports for ever."""
    migration = import_module("jobs.migrations.0040_measurements_of_trials")
    migration.nothing_reported(apps, SimpleNamespace(connection=connection))
    assert Run.objects.get().metrics_proof == "", "its host has it"
    Run.objects.update(forgotten_at=timezone.now())
    migration.nothing_reported(apps, SimpleNamespace(connection=connection))
    assert Run.objects.get().metrics_proof == "none"


def test_reports_that_are_not_those_of_the_host_are_found_out(host):
    data = line(1, 0.5)
    take(host, piece(0, data), Fact(CLOSED | {"metrics": True}), MetricsEnd(len(data), "0" * 64))
    assert Run.objects.get().metrics_proof == "differs"


def test_a_run_is_not_forgotten_before_its_reports_are_here(host, control_plane):
    take(host, Fact(CLOSED | {"metrics": True}))
    run = Run.objects.get()
    assert not wanted.forgettable(row_of(run, metrics_proof=""))
    assert wanted.forgettable(row_of(run, metrics_proof="whole"))


def row_of(run, **changes):
    now = timezone.now()
    of_run = dict.fromkeys(
        ("stop_wanted_at", "declared_lost_at", "proved_at", "prove_due_at", "job_deleted_at")
    )
    of_run |= {"stop_grace_s": 0.0, "log_stored": 0, "digest_here": "", "digest_host": ""}
    return wanted.Row(
        run=run.pk, phase="closed", log_complete_at=now, job_state="SUCCEEDED", **of_run, **changes
    )


@pytest.mark.parametrize("metrics", [{"metrics": False}, {}])
def test_a_run_that_reported_nothing_waits_for_nothing(host, metrics):
    take(host, Fact(CLOSED | metrics))
    assert Run.objects.get().metrics_proof == "none" and wants(host).metrics_from is None


@pytest.mark.parametrize(
    "data", [b"no newline", zlib.compress(b"x" * 9)[:5], b"\xff" * 20 + b"\n", line(1, 1, "a" * 100_000)]
)
def test_what_nobody_can_read_stops_nothing(host, data):
    take(host, MetricsPiece(0, len(data), False, data))
    assert Run.objects.get().metrics_proof in ("cut", "") and MetricPoint.objects.count() <= 1


def test_hostile_lines_are_left_out():
    bad = [
        b"[]", b"{}", b"null", b"[" * 9999, line(1.5, 1), line(1 << 60, 1), line(True, 1), line(1, True),
        line(1, "0.5"), line(1, None), line(1, 1, ""), line(1, 1, "\x00"), line(1, 1, 7), line(1, 1, "a", "log"),
        line(1, 1, at=-1), line(1, 1, at=1e12), line(1, 1, at="1"),
    ]  # fmt: skip
    assert [each for each in bad if journal.parse(each)] == []
    assert journal.parse(line(1, 10**400)).value == float("inf")
    assert journal.parse(line(1, 1, "a\n<b>\u202e")).name == "a <b>"


def test_ten_thousand_reports_are_counted_and_few_rows(host):
    data = b"".join(line(step, float((step * 7919) % 10007)) for step in range(1, 10_001))
    at = 0
    while at < len(data):
        end = data.rindex(b"\n", at, at + 60_000) + 1
        take(host, piece(at, data[at:end]))
        at = end
    series = MetricSeries.objects.get()
    assert series.reports == 10_000 and series.points == MetricPoint.objects.count() <= points.MOST
    steps = list(MetricPoint.objects.order_by("step").values_list("step", flat=True))
    assert (steps[0], steps[-1]) == (1, 10_000) and max(
        b - a for a, b in zip(steps, steps[1:], strict=False)
    ) < 60
    values = set(MetricPoint.objects.values_list("value", flat=True))
    assert {series.lowest, series.highest} <= values
    assert Run.objects.get().metrics_chain == journal.chained("", data.splitlines(keepends=True))


def test_series_of_a_run_are_bounded(host):
    take(host, piece(0, b"".join(line(1, 1, f"metric {number}") for number in range(900))))
    assert MetricSeries.objects.count() == points.MAX_SERIES


def test_a_thinned_curve_keeps_its_ends_and_extremes():
    curve = [(step, 5.0) for step in range(5000)]
    curve[777], curve[778], curve[779] = (777, -1.0), (778, 99.0), (779, float("nan"))
    found = kept(curve, 100)
    assert {0, 777, 778, 4999} <= set(found) and 100 <= len(found) <= 110
    assert kept(curve[:100], 100) == list(range(100))
    assert len(kept([(0, 1.0)] * 50, 10)) >= 1
