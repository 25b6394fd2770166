"""What a job used in the last minutes, at the top of its page."""

from __future__ import annotations

import re
from datetime import timedelta

from django.utils import timezone

from console.presenters.metrics.strip import strip
from jobs.host_sync import samples
from jobs.models import Run, RunSample
from tests.unit.console.views.example_rows import a_host, a_job, one_line


def sample(job, now, loads):
    """Each replica has its own load of two GPUs in the last ten minutes."""
    samples.save(
        [
            RunSample(
                run=run,
                step=10,
                at=now - timedelta(seconds=back),
                cpu=2.0,
                memory_mb=2048,
                gpus=[[load, 1024], [load, 1024]],
                gpu_power=[300, 300],
            )
            for run, load in zip(Run.objects.filter(job=job).order_by("replica__pool"), loads, strict=True)
            for back in range(0, 600, 10)
        ]
    )


def test_the_strip_says_whether_the_job_trains(browser, project, cast):
    job = a_job(project, cast.bob, replicas=2, host=a_host())
    sample(job, timezone.now(), (90, 0))
    page = browser("vera").get(f"/jobs/{job.pk}/").text
    part = one_line(page[page.index('id="job-strip"') : page.index('id="job-replicas"')])
    told = re.sub(r"<[^>]*>", "", part)
    assert "GPU 45 % (lowest 0 %)" in " ".join(told.split())
    assert "GPU memory 2.0 GiB" in told and "GPU power 600 W" in told and "CPU 2.0 CPUs" in told
    assert part.count("<path") == 5 and 'd="M' in part and "last 60 min" in told.replace("1 h", "60 min")
    assert f'href="/jobs/{job.pk}/metrics"' in part


def test_a_line_goes_from_minute_to_minute_and_other_jobs_do_not_count(project, cast):
    host, now = a_host(), timezone.now()
    job, other = (a_job(project, cast.bob, host=host) for _ in range(2))
    sample(other, now, (100,))
    run = Run.objects.get(job=job)
    samples.save(
        [
            RunSample(run=run, step=10, at=now - timedelta(minutes=back), cpu=back, gpus=[[back, 10]])
            for back in (3, 2, 1)
        ]
    )
    gpu, *_others = strip(job, now).sparks
    assert gpu.now == "1 %" and gpu.least == "" and len(re.findall("[ML]", gpu.path)) == 3


def test_the_more_replicas_the_shorter_the_time(django_assert_num_queries, project, cast):
    job = a_job(project, cast.bob)
    for replicas, minutes in ((1, 60), (64, 15), (1000, 5)):
        job.replica_count = replicas
        with django_assert_num_queries(1):
            assert strip(job, timezone.now()).lately == timedelta(minutes=minutes)


def test_without_samples_there_is_no_strip(browser, project, cast):
    job = a_job(project, cast.bob, "QUEUED")
    page = browser("vera").get(f"/jobs/{job.pk}/").text
    assert re.search(r'id="job-strip"[^>]* hidden>', page)
