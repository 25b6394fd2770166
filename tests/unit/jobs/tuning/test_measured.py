"""What counts of the reports of a trial: of which replica, of which way to report, of which run."""

from __future__ import annotations

import math

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs.metrics import points
from jobs.models import Job, MetricsProof, Run
from jobs.rules.metrics.journal import Report
from jobs.tuning import measured
from tests.unit.jobs.tuning.conftest import asked

pytestmark = pytest.mark.django_db


@pytest.fixture
def runs(study):
    """The runs of the first trial of a study whose trials have two replicas."""
    document = asked(parallelTrialCount=1)
    document["trialJobSpec"]["workerPoolSpecs"][0]["replicaCount"] = "1"
    document["trialJobSpec"]["workerPoolSpecs"].append(document["trialJobSpec"]["workerPoolSpecs"][0])
    study.submit(document).run()
    return list(Run.objects.order_by("replica__pool"))


def report(run, value, step=1, source="hypertune", name="loss"):
    reported = Report(source, name, step, value, timezone.now().timestamp())
    points.add(run.pk, {(name, source): [reported]}, timezone.now())


def found(names=("loss",)):
    Run.objects.update(metrics_read=None)
    return measured.of_jobs([Job.objects.get()], names).get(Job.objects.get().pk, measured.NOTHING)


def values(names=("loss",)):
    return {each.step: each.metrics for each in found(names).measurements}


def test_reports_of_the_primary_count_alone(runs):
    report(runs[0], 0.5)
    report(runs[1], 0.1, step=2)
    assert values() == {1: {"loss": 0.5}}


def test_without_reports_of_the_primary_those_of_another_replica_count(runs):
    report(runs[1], 0.1)
    report(runs[0], 0.9, name="other")
    assert values() == {1: {"loss": 0.1}}
    assert measured.names_of(Job.objects.get()) == ("loss", "other")


def test_what_a_program_reports_counts_before_what_it_prints(runs):
    report(runs[0], 0.7, step=3, source="log")
    assert values() == {3: {"loss": 0.7}}
    report(runs[0], 0.5)
    assert values() == {1: {"loss": 0.5}}


def test_metrics_of_one_step_are_one_measurement(runs):
    report(runs[0], 0.5)
    report(runs[0], 0.9, name="accuracy")
    report(runs[0], 0.4, step=2)
    assert values(("loss", "accuracy")) == {1: {"loss": 0.5, "accuracy": 0.9}, 2: {"loss": 0.4}}


def test_a_later_run_replaces_what_an_earlier_one_reported_at_a_step(runs):
    later = Run.objects.get(pk=runs[0].pk)
    later.pk, later.number = f"{runs[0].pk[:-1]}1", 1
    Run.objects.filter(pk=runs[0].pk).update(released_at=timezone.now())
    later.save(force_insert=True)
    report(runs[0], 0.9)
    report(runs[0], 0.8, step=2)
    report(later, 0.5)
    assert values() == {1: {"loss": 0.5}, 2: {"loss": 0.8}}


def test_a_value_that_is_no_number_comes_back(runs):
    report(runs[0], math.nan)
    report(runs[0], -math.inf, step=2)
    assert math.isnan(values()[1]["loss"]) and values()[2] == {"loss": -math.inf}


def test_it_is_whole_when_hosts_and_logs_have_nothing_more(runs):
    assert not found().whole
    Run.objects.update(metrics_proof=MetricsProof.NONE)
    assert found().whole
    Run.objects.update(metrics_read=5, log_stored=5, log_complete_at=timezone.now())
    job = Job.objects.get()
    assert not measured.of_jobs([job], ("loss",))[job.pk].whole
    assert found().whole


def test_nothing_is_waited_for_of_a_host_that_was_declared_gone(runs):
    Run.objects.filter(pk=runs[1].pk).update(metrics_proof=MetricsProof.NONE, metrics_read=None)
    now = timezone.now()
    job = Job.objects.get()
    assert not measured.of_jobs([job], ("loss",))[job.pk].whole
    Run.objects.filter(pk=runs[0].pk).update(declared_lost_at=now, metrics_read=0, log_stored=5)
    assert measured.of_jobs([job], ("loss",)).get(job.pk, measured.NOTHING).whole
    Run.objects.filter(pk=runs[0].pk).update(proved_at=now)
    assert not measured.of_jobs([job], ("loss",))[job.pk].whole, "it has come back with what it has"


def test_nothing_is_waited_for_of_a_run_that_its_host_has_forgotten(runs):
    """Or was never told of: what it needs could not be prepared there."""
    assert not found().whole
    Run.objects.update(forgotten_at=timezone.now())
    assert found().whole


def test_however_many_metrics_the_trials_report_none_of_the_study_is_missing(study, runs):
    """The metric of the study is the last by name. Each job has as many as it may."""
    for run in Run.objects.all():
        names = [f"a{number:03}" for number in range(points.MAX_SERIES - 1)]
        at = timezone.now()
        reports = {
            (name, "hypertune"): [Report("hypertune", name, 1, 0.5, 1.7e9)] for name in [*names, "loss"]
        }
        points.add(run.pk, reports, at)
    job = Job.objects.get()
    with CaptureQueriesContext(connection) as queries:
        [seen] = measured.of_jobs([job], ("loss",)).values()
    assert [each.metrics for each in seen.measurements] == [{"loss": 0.5}] and len(queries) == 3
    rows = [row for row in queries.captured_queries if "jobs_metricseries" in row["sql"]]
    assert all("LIMIT" not in row["sql"] for row in rows[:1])
    assert len(measured._of_jobs(jobs=[job.pk], names=["loss"])) == Run.objects.count(), "no others are read"
    assert len(measured.names_of(job)) == measured.MOST_NAMES
