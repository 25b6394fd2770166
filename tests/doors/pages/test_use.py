"""How busy a job is, at the doors: a stalled one reads 0 %, a line is broken where nothing was known."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree

import pytest
from django.utils import timezone

from console.presenters.live import job_stamp
from console.presenters.use import HEIGHT, POINTS, WIDTH, path, thin
from jobs.models import Run, RunSample
from tests.doors.pages.rows import a_host, a_job

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


def test_a_stalled_replica_reads_nothing_beside_a_busy_one(browser, busy):
    page = browser("vera").get(f"/jobs/{busy.pk}/?use=workerpool1-0&span=day").content.decode()
    part = page[page.index('<section id="job-use"') : page.index('<section id="job-events"')]
    first, second = part.split('id="use-workerpool')[1:]
    assert "50 %" in first and "2.0 of 4 CPUs" in first and "3.0 GiB" in first
    assert " 0 %" in second and "0.0 of 4 CPUs" in second and "stalled" not in second
    svg = ElementTree.fromstring(part[part.index("<svg") : part.index("</svg>") + 6])
    assert svg.get("aria-label").startswith("CPU: 0.0 CPUs") and len(svg) == 1
    heights = {float(point.split(" ")[1]) for point in svg[0].get("d")[1:].replace("M", "L").split("L")}
    assert min(heights) > HEIGHT - 2 and "style" not in part
    both = browser("vera").get(f"/jobs/{busy.pk}/").content.decode()
    assert both.count("<path") > both.count("<figure") == 4  # CPU, memory, and both GPUs twice


def test_scripts_read_samples(browser, busy):
    ask = browser("vera").get
    told = ask(f"/api/v1/jobs/{busy.pk}/samples?replica=workerpool0-0").json()
    [run] = told["runs"]
    assert len(run["samples"]) == 60 and run["samples"][-1]["gpus"][0] == {
        "utilization": 90,
        "memoryMb": 2048,
    }
    half = run["samples"][30]["time"]
    later = ask(f"/api/v1/jobs/{busy.pk}/samples", {"run": run["run"], "after": half}).json()
    assert later["runs"][0]["samples"] == run["samples"][31:]
    for wrong in ("yesterday", "0001-01-01T00:00:00%2B12:00"):
        assert ask(f"/api/v1/jobs/{busy.pk}/samples?after={wrong}").status_code == 400
    assert browser("charlie").get(f"/api/v1/jobs/{busy.pk}/samples").status_code == 404


def test_a_new_sample_is_news_for_the_page(busy):
    before = job_stamp(busy.pk)
    assert job_stamp(busy.pk) == before
    Run.objects.filter(job=busy).update(sampled_at=timezone.now())
    assert job_stamp(busy.pk) != before


@pytest.mark.parametrize(
    ("points", "drawn"),
    [
        ([(0, 0.0), (10, 4.0)], f"M0.0 {HEIGHT - 1:.1f} L{WIDTH:.1f} 1.0"),
        ([(0, 4.0), (400, 4.0)], f"M0.0 1.0 M{WIDTH:.1f} 1.0"),
        ([], ""),
    ],
)
def test_a_line_goes_where_something_was_known(points, drawn):
    line = [(T0 + timedelta(seconds=at), value) for at, value in points]
    end = line[-1][0] if line else T0
    assert path(line, T0, end, 4.0, timedelta(seconds=30)) == drawn


def test_a_peak_stays_one():
    line = [(T0 + timedelta(seconds=n), 9.0 if n == 777 else 1.0) for n in range(5000)]
    assert len(thin(line)) <= POINTS and max(value for _, value in thin(line)) == 9.0
