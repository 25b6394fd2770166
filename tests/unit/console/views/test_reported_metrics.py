"""What programs reported, on the page of a job and in the API: any name, any value, few and many of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree

import pytest
from django.utils import timezone

from console.presenters import reduction_words
from console.presenters.jobs import job_parts
from console.presenters.jobs.job_parts import part_live, part_stamp
from console.presenters.metrics import reported_metrics
from jobs.metrics import points
from jobs.models import Job, MetricSeries, Replica, Run
from jobs.rules.metrics.journal import Report
from tests.unit.console.script_tokens import token_of
from tests.unit.console.views.example_rows import a_host, a_job, a_run

T0 = datetime(2026, 11, 21, 20, tzinfo=UTC)
HOSTILE = '"><script>alert(1)</script>'


@pytest.fixture
def job(project, cast):
    return a_job(project, cast.bob, replicas=2, host=a_host())


def run_of(job, replica="workerpool0-0"):
    return Run.objects.filter(job=job, replica__name=replica).order_by("number").last()


def report(run, values, name="loss", source="file"):
    found = [Report(source, name, step, value, T0.timestamp()) for step, value in values]
    points.add(run.pk, {(name, source): found}, T0)


def page_of(browser, job):
    return browser("vera").get(f"/jobs/{job.pk}/metrics").text


def test_each_reported_metric_has_a_curve_and_a_table(browser, job):
    assert 'id="job-reports"' in page_of(browser, job) and "Reported by the program" not in page_of(
        browser, job
    )
    before = part_stamp("job-reports", job.pk)
    report(run_of(job), [(step, 1 / step) for step in range(1, 100)])
    report(run_of(job, "workerpool1-0"), [(1, 5.0), (2, float("nan")), (3, float("inf")), (50, 0.25)])
    report(run_of(job), [(1, 0.5)], "val/accuracy", "tensorboard")
    assert part_stamp("job-reports", job.pk) != before
    page = page_of(browser, job)
    part = page[page.index('<section id="job-reports"') : page.index('<section id="job-charts"')]
    assert part.count("<figure") == 2 and "by TensorBoard" in part and "style=" not in part
    begin = part.index("<svg viewBox")
    drawn = ElementTree.fromstring(part[begin : part.index("</svg>", begin) + 6])
    lines = [line.get("d") for line in drawn]
    assert lines[0].count("L") == 98 and lines[1].count("M") == 2, "a line is broken where there is no number"
    assert drawn.get("aria-label").startswith("loss: 2 lines. workerpool0-0 is at 0.010101 at step 99")


def test_names_are_text_whatever_they_look_like(browser, job):
    report(run_of(job), [(1, 1.0)], HOSTILE)
    report(run_of(job), [(1, 1e308), (2, -1e308)], "huge")
    report(run_of(job), [(1, float("nan"))], "never a number")
    page = page_of(browser, job)
    assert HOSTILE not in page and "&lt;script&gt;alert(1)" in page
    assert "1e+308" in page and 'd="M' in page and "NaN" in page


def test_a_job_that_has_stopped_reporting_is_noted(browser, job):
    """Ten minutes after the last report, while the job runs, and live without anything else that changes."""
    report(run_of(job), [(1, 1.0)])
    MetricSeries.objects.update(at=timezone.now() - timedelta(minutes=9))
    before = part_stamp("job-reports", job.pk)
    assert "Nothing has been reported since" not in page_of(browser, job)
    at = timezone.now() - timedelta(minutes=11)
    MetricSeries.objects.update(at=at)
    stamp = part_stamp("job-reports", job.pk)
    assert "Nothing has been reported since" in page_of(browser, job) and stamp != before
    MetricSeries.objects.update(at=timezone.now())
    assert "Nothing has been reported since" not in page_of(browser, job)
    MetricSeries.objects.update(at=at)
    Job.objects.filter(pk=job.pk).update(state="SUCCEEDED", ended_at=timezone.now())
    assert "Nothing has been reported since" not in page_of(browser, job)
    assert part_stamp("job-reports", job.pk) != stamp


def test_a_stamp_changes_when_a_job_falls_silent(job, monkeypatch):
    report(run_of(job), [(1, 1.0)])
    at = timezone.now() - timedelta(minutes=9)
    MetricSeries.objects.update(at=at)
    before = part_stamp("job-reports", job.pk)
    monkeypatch.setattr(job_parts, "SILENT", timedelta(minutes=8))
    assert part_stamp("job-reports", job.pk) != before


def test_a_metric_that_two_jobs_report_in_different_ways_is_one_chart(project, cast, job):
    other = a_job(project, cast.bob, host=a_host(name="other"))
    report(run_of(job), [(1, 1.0), (2, 0.5)], "loss", "tensorboard")
    report(run_of(job), [(1, 9.0)], "loss", "log")
    report(run_of(other), [(1, 2.0)], "loss", "hypertune")
    [chart] = reported_metrics.compared([job, other])
    assert chart.source == "cloudml-hypertune, TensorBoard"
    assert [(curve.last, curve.highest) for curve in chart.curves] == [("0.5", "1"), ("2", "2")]


def test_a_restart_goes_on_with_the_curve_of_its_replica(job):
    first = run_of(job)
    report(first, [(1, 1.0), (2, 2.0), (3, 3.0)])
    again = Run.objects.get(pk=first.pk)
    again.pk, again.number, again.port = first.pk + "x", first.number + 1, 50_000
    again.save(force_insert=True)
    report(again, [(2, 20.0), (3, 30.0), (4, 40.0)])
    [chart] = reported_metrics.reported(job).charts
    [line] = chart.lines
    assert (line.last, line.lowest, line.reports, chart.last_step) == ("40", "1", 6, 4)
    assert reported_metrics.join([[(1, 1.0), (2, 2.0)], [(2, 20.0)]]) == [(1, 1.0), (2, 20.0)]


def test_many_metrics_and_replicas_are_bounded(project, cast, django_assert_max_num_queries):
    job = a_job(project, cast.bob, replicas=12, host=a_host())
    for run in Run.objects.filter(job=job):
        report(run, [(1, 1.0)], "shared")
    for number in range(40):
        report(run_of(job), [(1, 1.0)], f"metric {number:02}")
    with django_assert_max_num_queries(4):
        found = reported_metrics.reported(job)
    assert (len(found.charts), found.more) == (24, 17)
    everything = reported_metrics.series_of(Run.objects.filter(job=job), "shared")
    assert len(everything) == 12
    html = part_live("job-reports", cast.vera, job.pk, {})
    assert "17 more metrics were reported" in html and len(html) < 120_000


@pytest.fixture
def reduced(job):
    """A job with two trainers and two reducers."""
    reducers = {"replicaCount": "2", "trainyard": {"runtime": "reduction-server"}}
    job.spec["workerPoolSpecs"].append(reducers)
    job.save()
    host = run_of(job).host
    for index in range(2):
        name = f"workerpool2-{index}"
        replica = Replica.objects.create(job=job, name=name, pool=2, index=index, state="RUNNING")
        a_run(job, replica, host)
    return job


def trained(job, waiting, idle):
    for replica in ("workerpool0-0", "workerpool1-0"):
        report(run_of(job, replica), [(1, 3.0), (2, 512.25)], reduction_words.SENT)
        report(run_of(job, replica), [(1, 99.0), (2, waiting)], reduction_words.WAITING)
    for index, share in enumerate(idle):
        report(run_of(job, f"workerpool2-{index}"), [(1, 1.0), (2, share)], reduction_words.IDLE)


MORE = "More reducers, or bf16 on the wire, would make the steps shorter."
TIME_LEFT = "The reducers have time left: the replicas wait for the slowest among them, or for the network."


@pytest.mark.parametrize(
    ("waiting", "idle", "share", "advice"),
    [
        (42.0, (20.0, 40.0), 30, [MORE]),
        (42.0, (90.0, 94.0), 92, [TIME_LEFT]),
        (3.0, (90.0, 94.0), 92, ["Fewer reducers would do."]),
        (15.0, (60.0, 60.0), 60, []),
        (15.0, (60.0,), 60, ["1 reducer gets no gradients."]),
    ],
)
def test_a_sentence_says_how_busy_reducers_are(browser, reduced, waiting, idle, share, advice):
    silent = "Reduction Server: no gradients have gone through it yet."
    assert silent in page_of(browser, reduced)
    trained(reduced, waiting, idle)
    said = (
        f"Reduction Server: 2 replicas have sent 1024 MB, and lately waited {waiting:.0f} % of their time for sums; "
        f"the reducers were idle {share} % of theirs."
    )
    assert list(reported_metrics.reported(reduced).reduction) == [said, *advice]
    page = page_of(browser, reduced)
    assert said in page and silent not in page


def test_a_job_without_reducers_says_nothing_of_them(browser, job):
    trained(job, 42.0, ())
    assert "Reduction Server:" not in page_of(browser, job)


def test_the_api_has_every_point_and_says_what_is_no_number(client, cast, job):
    report(run_of(job), [(1, 0.5), (2, float("nan")), (3, float("-inf"))])
    report(run_of(job, "workerpool1-0"), [(7, 1.0)], "other", "mlflow")
    ask = lambda query, name="vera": client.get(  # noqa: E731
        f"/api/v1/jobs/{job.pk}/reports{query}",
        headers={"authorization": f"Bearer {token_of(getattr(cast, name))}"},
    )
    found = ask("").json()
    assert (found["complete"], found["truncated"]) == (False, False)
    loss, other = found["series"]
    assert [(each["step"], each["value"], each["notNumber"]) for each in loss["points"]] == [
        (1, 0.5, ""), (2, None, "NaN"), (3, None, "-Infinity"),
    ]  # fmt: skip
    assert (loss["reports"], loss["lowest"], loss["last"]["step"]) == (3, 0.5, 3)
    assert (other["replica"], other["source"], other["last"]["value"]) == ("workerpool1-0", "mlflow", 1.0)
    assert [each["name"] for each in ask("?replica=workerpool1-0").json()["series"]] == ["other"]
    assert [each["name"] for each in ask("?name=loss").json()["series"]] == ["loss"]
    assert [each["name"] for each in ask("?source=mlflow").json()["series"]] == ["other"]
    assert ask("?source=zz").status_code == 400
    Run.objects.filter(job=job).update(metrics_proof="whole")
    assert ask("").json()["complete"] is True


def test_what_jobs_reported_is_compared_over_their_steps(browser, project, cast, job):
    other, silent = (a_job(project, cast.bob, replicas=2, host=a_host()) for _ in range(2))
    report(run_of(job), [(1, 1.0), (2, 0.5)])
    report(run_of(job, "workerpool1-0"), [(1, 99.0)])
    report(run_of(other, "workerpool1-0"), [(1, 2.0), (10, 0.25)], HOSTILE)
    report(run_of(other, "workerpool1-0"), [(1, 2.0), (10, 0.25)])
    page = browser("vera").get(f"/jobs/compare?job={job.pk}&job={other.pk}&job={silent.pk}").text
    assert HOSTILE not in page
    part = page[page.index('id="reported-title"') : page.index('id="metrics-title"')]
    assert part.count("<figure") == 2 and "style=" not in part
    words = " ".join(part.split())
    assert "0.5; 0.5 to 1" in words and "0.25; 0.25 to 2" in words and "99" not in words
    assert words.count("of workerpool1-0, because the primary reported none") == 2
    assert "Where the primary reported none, the line is that of the first replica that did" in words


def test_a_replica_that_reports_in_another_way_does_not_count_beside_the_primary(job):
    """As for a trial: of one metric, the reports of one replica count."""
    report(run_of(job), [(1, 1.0)])
    report(run_of(job, "workerpool1-0"), [(1, 99.0)], source="tensorboard")
    report(run_of(job, "workerpool1-0"), [(1, 5.0)], "other")
    loss, other = reported_metrics.compared([job])
    assert (loss.name, loss.curves[0].last, loss.curves[0].note) == ("loss", "1", "")
    assert other.curves[0].note == "of workerpool1-0, because the primary reported none"


def test_what_was_reported_goes_with_the_job(job):
    report(run_of(job), [(1, 0.5)])
    points.purge(job)
    assert not MetricSeries.objects.exists()
