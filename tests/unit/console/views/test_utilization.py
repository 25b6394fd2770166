"""What a job uses, on pages and in the API: a stalled replica shows 0 %, a chart has gaps without samples."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from html import unescape
from urllib.parse import parse_qsl
from xml.etree import ElementTree

import pytest
from django.utils import timezone

from console.api.jobs import samples
from console.presenters.jobs.job_parts import context, part_stamp
from console.presenters.metrics.charts import HEIGHT, WIDTH, path
from jobs.models import LogPiece, LogSegment, Run, RunSample
from tests.unit.console.views.example_rows import a_host, a_job, one_line

T0 = datetime(2026, 11, 21, 20, tzinfo=UTC)


@pytest.fixture
def busy(project, cast):
    """One replica works on two GPUs, the other one has stalled."""
    job = a_job(project, cast.bob, replicas=2, host=a_host(gpus=2))
    now = timezone.now()
    for index, run in enumerate(Run.objects.filter(job=job).order_by("replica__pool")):
        run.cpus, run.memory_mb = 4, 4096
        run.gpu_uuids = [gpu.uuid for gpu in run.host.gpus.all()] if not index else []
        run.save()
        gpus = [] if index else [[90, 2048], [10, 1024]]
        for back in range(60):
            at = now - timedelta(seconds=10 * back)
            cpu = 0.004 if index else 2.0
            RunSample.objects.create(run=run, step=10, at=at, cpu=cpu, memory_mb=512, gpus=gpus)
    return job


def test_each_row_chooses_its_replica_and_keeps_what_else_is_asked_for(browser, busy):
    """A filter may look like what holds the place of the name."""
    page = browser("vera").get(f"/jobs/{busy.pk}/metrics?sort=silent&text=%2500&span=day").text
    part = page[page.index('<section id="job-use"') :]
    rows = re.findall(r'<tr id="use-([^"]+)"[^>]*>.*?href="\?([^"#]+)#job-charts"', part, re.DOTALL)
    asked = {name: dict(parse_qsl(unescape(query))) for name, query in rows}
    assert asked == {
        name: {"replica": name, "sort": "silent", "text": "%00", "span": "day"}
        for name in ("workerpool0-0", "workerpool1-0")
    }


def test_a_stalled_replica_shows_0_percent_beside_a_busy_one(browser, busy):
    page = browser("vera").get(f"/jobs/{busy.pk}/metrics?use=workerpool1-0&span=day").text
    part = page[page.index('<section id="job-use"') :]
    first, second = one_line(part).split('id="use-workerpool')[1:]
    assert "50 %" in first and "2.0 of 4 CPUs" in first and "3.0 GiB" in first
    assert " 0 %" in second and "0.0 of 4 CPUs" in second and "stalled" not in second
    page = browser("vera").get(f"/jobs/{busy.pk}/metrics?use=workerpool1-0&span=day").text
    drawn = page[page.index('data-metric="cpu"') :]
    svg = ElementTree.fromstring(drawn[drawn.index("<svg viewBox") : drawn.index("</svg>") + 6])
    assert svg.get("aria-label").startswith("CPU: 0.0 CPUs") and len(svg) == 1
    assert "<svg" in drawn and "style=" not in drawn[: drawn.index("</figure>")]
    both = browser("vera").get(f"/jobs/{busy.pk}/metrics?replica=workerpool0-0").text
    both = both[both.index('id="job-charts"') : both.index('id="job-metrics"')]
    # CPU, memory, and both GPUs twice.
    assert both.count("<figure") == 4 and both.count("<path") == 6


def test_a_replica_that_hangs_is_marked_and_sorted_first(browser, project, cast):
    """Replicas sorted by their last line, by our clock, whether it is in rows or in files. The quietest is first."""
    job = a_job(project, cast.bob, replicas=4, host=a_host(clock_offset_s=300.0))
    now = timezone.now().timestamp()
    ages = {"workerpool0-0": 2, "workerpool1-0": 3, "workerpool1-1": 2000, "workerpool1-2": 4}
    for run in Run.objects.filter(job=job).select_related("replica"):
        wall = now - ages[run.replica.name] + 300
        marks = [[0, wall - 50], [10, wall]]
        if run.replica.name == "workerpool1-1":
            LogSegment.objects.create(run=run, start=0, end=20, key="k", index=[[0, 20, 0, 9, True, marks]])
            run.log_rolled = 20
        else:
            LogPiece.objects.create(run=run, start=0, end=10, z=False, data=b"x" * 10, at=[[0, wall - 900]])
            LogPiece.objects.create(run=run, start=10, end=20, z=False, data=b"x" * 10, at=marks)
        run.log_stored = 20
        run.save()
    use = context(("job-metrics",), job, cast.vera, {"sort": "silent"})["use"]
    assert [line.replica for line in use.now][0] == "workerpool1-1"
    for line in use.now:
        assert abs(now - ages[line.replica] - line.printed_at.timestamp()) < 1
    assert [line.replica for line in use.odd] == ["workerpool1-1"]
    told = browser("vera").get(f"/api/v1/jobs/{job.pk}").json()["replicas"]
    assert min(told, key=lambda replica: replica["lastPrintTime"])["name"] == "workerpool1-1"
    page = browser("vera").get(f"/jobs/{job.pk}/metrics?sort=silent").content.decode()
    assert "Much quieter than the others" in page and page.count('class="odd"') == 1
    assert page.index('id="use-workerpool1-1"') < page.index('id="use-workerpool0-0"')
    assert f"/jobs/{job.pk}/log/workerpool1-1" in page
    use = context(("job-metrics",), job, cast.vera, {})["use"]
    assert [line.replica for line in use.now] == list(ages)


def test_the_api_returns_samples(browser, busy):
    ask = browser("vera").get
    told = ask(f"/api/v1/jobs/{busy.pk}/samples?replica=workerpool0-0").json()
    [run] = told["runs"]
    assert len(run["samples"]) == 60 and run["samples"][-1]["gpus"][0] == {
        "utilization": 90,
        "memoryMb": 2048,
        "powerW": None,
        "temperatureC": None,
    }
    half = run["samples"][30]["time"]
    later = ask(f"/api/v1/jobs/{busy.pk}/samples", {"run": run["run"], "after": half}).json()
    assert later["runs"][0]["samples"] == run["samples"][31:]
    for wrong in ("yesterday", "0001-01-01T00:00:00%2B12:00"):
        assert ask(f"/api/v1/jobs/{busy.pk}/samples?after={wrong}").status_code == 400
    assert browser("charlie").get(f"/api/v1/jobs/{busy.pk}/samples").status_code == 404


@pytest.mark.parametrize("many", [1, 99])
def test_the_pages_of_samples_together_have_each_once(browser, busy, monkeypatch, many):
    """Both replicas have samples of the same times, as those of one batch have, and pages end between them. A short
    time is looked at first, or not.
    """
    ask, address = browser("vera").get, f"/api/v1/jobs/{busy.pk}/samples"
    monkeypatch.setattr(samples, "MANY_RUNS", many)
    Run.objects.filter(job=busy).update(sampled_at=timezone.now())
    # A gap, as a host leaves that was unreachable: the short time before it has too few.
    newest = RunSample.objects.filter(run__job=busy).order_by("-at").values_list("at", flat=True)
    RunSample.objects.filter(run__job=busy, at__in=list(newest[20:100])).delete()
    whole = ask(address, {"pageSize": 5_000}).json()
    assert not whole["truncated"] and "nextPageToken" not in whole
    pages = [ask(address, {"pageSize": 7}).json()]
    while pages[-1]["truncated"]:
        pages.append(ask(address, {"pageSize": 7, "pageToken": pages[-1]["nextPageToken"]}).json())
    assert len(pages) == 6
    for number, run in enumerate(whole["runs"]):
        older_first = [page["runs"][number] for page in reversed(pages)]
        assert {each["run"] for each in older_first} == {run["run"]}
        assert [sample for each in older_first for sample in each["samples"]] == run["samples"]
    for wrong in ("x", "1-", "9" * 30 + "-1", "-1-2"):
        assert ask(address, {"pageToken": wrong}).status_code == 400


def test_a_new_sample_changes_the_stamp_of_the_page(busy):
    before = part_stamp("job-metrics", busy.pk)
    assert part_stamp("job-metrics", busy.pk) == before
    Run.objects.filter(job=busy).update(sampled_at=timezone.now())
    assert part_stamp("job-metrics", busy.pk) != before


@pytest.mark.parametrize(
    ("points", "drawn"),
    [
        ([(0, 0.0), (10, 4.0)], f"M0.0 {HEIGHT - 1:.1f} L{WIDTH:.1f} 1.0"),
        ([(0, 4.0), (400, 4.0)], f"M0.0 1.0 M{WIDTH:.1f} 1.0"),
        ([], ""),
    ],
)
def test_a_chart_line_has_a_gap_where_samples_are_missing(points, drawn):
    line = [(T0 + timedelta(seconds=at), value) for at, value in points]
    end = line[-1][0] if line else T0
    assert path(line, T0, end, 4.0, timedelta(seconds=30)) == drawn
