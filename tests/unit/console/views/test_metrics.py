"""The metrics of a job as lines: few replicas over each other, many as bands, gaps as gaps, bounded for any job."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from datetime import timedelta
from urllib.parse import urlencode

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agents.infra import shared_answers
from console.presenters.metrics import bands, metrics
from console.presenters.metrics.metric_lines import BY_NAME, METRICS, Grid, Sample, Span, step_for
from console.presenters.metrics.metrics_page import newest_points
from jobs.host_sync import samples
from jobs.host_sync.samples import start_of_step
from jobs.models import Run, RunSample, Transition
from tests.unit.console.views.example_rows import a_host, a_job

UTILIZATION, POWER, HEAT = (BY_NAME[name] for name in ("gpuUtilization", "gpuPower", "gpuTemperature"))


def lines_of(told, metric):
    [chart] = [chart for chart in told["metrics"] if chart["name"] == metric]
    return {line["name"]: line["values"] for line in chart["lines"]}


def sampled(job, now, minutes, dice=random, gpus=2, every=10):
    """Give each run of the job samples up to now."""
    rows = []
    for run in Run.objects.filter(job=job):
        run.cpus, run.memory_mb, run.gpu_uuids = 4, 4096, [f"GPU-{run.host_id}-{n}" for n in range(gpus)]
        run.save()
        for back in range(0, minutes * 60, every):
            rows.append(
                RunSample(
                    run=run,
                    step=10,
                    at=now - timedelta(seconds=back),
                    cpu=dice.uniform(0, 4),
                    memory_mb=dice.randrange(100, 4096),
                    gpus=[[dice.randrange(101), dice.randrange(24_000)] for _ in range(gpus)],
                    gpu_power=[dice.randrange(700) for _ in range(gpus)],
                    gpu_temperature=[dice.randrange(30, 90) for _ in range(gpus)],
                    disk_free_mb=dice.randrange(500_000),
                    net_rx=dice.randrange(10**10),
                    net_tx=dice.randrange(10**10),
                    io_read=dice.randrange(10**9),
                    io_write=dice.randrange(10**9),
                )
            )
    samples.save(rows)


@pytest.fixture
def ask(browser):
    def ask(job, query="", person="vera"):
        shared_answers.forget_all()
        return browser(person).get(f"/api/v1/jobs/{job.pk}/metrics{query}")

    return ask


def test_one_replica_has_a_line_for_each_gpu(ask, project, cast):
    job = a_job(project, cast.bob, host=a_host(gpus=2))
    now = timezone.now()
    sampled(job, now, minutes=10)
    told = ask(job).json()
    assert told["step"] == 15 and told["bands"] is False and told["count"] <= 240
    assert list(lines_of(told, "gpuPower")) == ["workerpool0-0 GPU 0", "workerpool0-0 GPU 1"]
    assert list(lines_of(told, "cpu")) == ["workerpool0-0"]
    assert [chart["name"] for chart in told["metrics"]] == [metric.name for metric in METRICS]
    tops = {chart["name"]: chart["top"] for chart in told["metrics"]}
    assert (
        tops["cpu"] == 4
        and tops["memory"] == 4096
        and tops["gpuMemory"] == 24576
        and tops["diskRead"] is None
    )
    assert all(chart["ofHost"] == chart["name"].startswith(("disk", "network")) for chart in told["metrics"])


def test_few_replicas_lie_over_each_other_and_can_be_chosen(ask, project, cast):
    job = a_job(project, cast.bob, replicas=3, host=a_host(gpus=2))
    sampled(job, timezone.now(), minutes=2)
    names = ["workerpool0-0", "workerpool1-0", "workerpool1-1"]
    assert list(lines_of(ask(job).json(), "gpuUtilization")) == names
    assert list(lines_of(ask(job, "?replicas=workerpool1-1,workerpool0-0").json(), "cpu")) == names[::2]
    alone = ask(job, "?replicas=workerpool1-1").json()
    assert list(lines_of(alone, "gpuMemory")) == ["workerpool1-1 GPU 0", "workerpool1-1 GPU 1"]
    assert list(lines_of(ask(job, "?bands=1").json(), "cpu")) == ["min", "median", "max"]


def test_nine_replicas_become_bands(ask, project, cast):
    job = a_job(project, cast.bob, replicas=9, host=a_host())
    now = start_of_step(timezone.now(), 60)
    for place, run in enumerate(Run.objects.filter(job=job).order_by("replica__pool", "replica__index")):
        RunSample.objects.create(run=run, step=10, at=now - timedelta(seconds=30), cpu=place, gpus=[])
    told = ask(job).json()
    assert told["bands"] is True
    known = {
        name: [value for value in line if value is not None] for name, line in lines_of(told, "cpu").items()
    }
    assert known == {"min": [0], "median": [4], "max": [8]}
    refused = ask(job, "?bands=0")
    assert refused.status_code == 400 and "name them in replicas" in refused.text
    assert ask(job, "?bands=0&replicas=workerpool0-0").json()["bands"] is False


def test_a_gap_is_a_gap_and_a_coarse_sample_stands_for_its_minute(ask, project, cast):
    job = a_job(project, cast.bob, host=a_host())
    run = Run.objects.get(job=job)
    start = start_of_step(timezone.now() - timedelta(minutes=30), 600)
    for step, seconds, cpu in ((60, 0, 1.0), (10, 125, 2.0)):
        RunSample.objects.create(run=run, step=step, at=start + timedelta(seconds=seconds), cpu=cpu, gpus=[])
    until = start + timedelta(minutes=3)
    span = f"from={start:%Y-%m-%dT%H:%M:%SZ}&to={until:%Y-%m-%dT%H:%M:%SZ}"
    told = ask(job, f"?{span}&step=30").json()
    assert lines_of(told, "cpu") == {"workerpool0-0": [1, 1, None, None, 2, None]}
    assert [chart["name"] for chart in told["metrics"]] == ["cpu"]


def test_64_replicas_are_bounded(ask, project, cast):
    """At most 240 points, 60 KB compressed and as many queries as for one replica. Not every sample is read."""
    job = a_job(project, cast.bob, replicas=64, host=a_host())
    now, dice = timezone.now(), random.Random(7)
    sampled(job, now, minutes=60, dice=dice, gpus=8)
    with CaptureQueriesContext(
        connection,
    ) as many:
        answer = ask(job)
    told = answer.json()
    assert told["bands"] and told["thinned"] and 50 < told["count"] <= 240
    assert len(gzip.compress(answer.content, 6)) <= 60_000
    values = lines_of(told, "gpuUtilization")
    assert sum(value is None for value in values["median"]) <= 2
    assert all(low <= mid <= high for low, mid, high in zip(*values.values(), strict=True) if mid is not None)
    eight = ask(job, "?replicas=" + ",".join(f"workerpool1-{n}" for n in range(8)))
    assert not eight.json()["thinned"] and len(gzip.compress(eight.content, 6)) <= 60_000
    other = a_job(project, cast.bob, host=a_host())
    sampled(other, now, minutes=1)
    with CaptureQueriesContext(connection) as few:
        ask(other)
    assert len(many) == len(few)


def test_what_happened_is_marked_and_folded(ask, project, cast):
    job = a_job(project, cast.bob, replicas=3, host=a_host())
    now = timezone.now()
    sampled(job, now, minutes=5)
    for subject in ("workerpool0-0", "workerpool1-0", "workerpool1-1"):
        Transition.objects.create(
            job=job,
            at=start_of_step(now - timedelta(minutes=2), 60),
            kind="restart",
            subject=subject,
            to_state="STARTING",
            attempt=1,
            cause="It was killed.",
            actor="trainyard",
        )
    [mark] = [mark for mark in ask(job).json()["events"] if mark["kind"] == "restart"]
    assert (mark["kind"], mark["count"], mark["text"]) == ("restart", 3, "It was killed.")


def test_the_lines_as_csv(ask, project, cast):
    job = a_job(project, cast.bob, host=a_host(gpus=1))
    sampled(job, timezone.now(), minutes=2, gpus=1)
    answer = ask(job, "?format=csv")
    assert answer["Content-Type"].startswith("text/csv") and "attachment" in answer["Content-Disposition"]
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    told = ask(job).json()
    assert len(rows) == told["count"] and rows[0]["time"] == told["from"]
    column = [row["gpuPower [W] workerpool0-0 GPU 0"] for row in rows]
    assert column == [
        "" if value is None else str(value) for value in lines_of(told, "gpuPower")["workerpool0-0 GPU 0"]
    ]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("from=yesterday", "from must be a time such as"),
        ("from=2026-11-21T20:00:00Z&to=2026-11-21T19:00:00Z", "to must be later than from"),
        ("step=1", "step must be a whole number of seconds, from 10"),
        ("step=10", "step must be larger: an answer has at most 240"),
        ("from=2020-01-01T00:00:00Z&step=60", "step must be larger"),
        ("replicas=workerpool0-0,zz", "replicas must be one of workerpool0-0"),
        ("bands=yes", "bands must be 1 or 0"),
        ("format=xml", "format must be json or csv"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_cure(ask, project, cast, query, words):
    answer = ask(a_job(project, cast.bob), f"?{query}")
    assert answer.status_code == 400 and words in answer.text


def test_a_stranger_finds_no_job(ask, project, cast):
    assert ask(a_job(project, cast.bob), person="charlie").status_code == 404


def test_a_job_without_samples_has_no_charts(ask, project, cast):
    told = ask(a_job(project, cast.bob)).json()
    assert told["metrics"] == [] and told["lastSampleTime"] is None


# The pure part


def test_a_step_is_the_smallest_that_gives_few_enough_points():
    assert [step_for(length) for length in (600, 3600, 3601, 86_400, 30 * 86_400)] == [
        15,
        15,
        30,
        600,
        14_400,
    ]
    for length in (1, 4_000, 90_000, 400_000, 50_000_000):
        assert length / step_for(length) <= 240


def test_samples_of_an_older_version_are_read_as_those_of_now(ask, browser, project, cast):
    """They have only the lists of their GPUs."""
    job = a_job(project, cast.bob, replicas=3, host=a_host(gpus=2))
    now = timezone.now()
    sampled(job, now, minutes=10)
    # Both looks are at the same time: the time up to now is another one after each step.
    span = urlencode({"from": (now - timedelta(minutes=10)).isoformat(), "to": now.isoformat()})

    def seen():
        charts = {chart["name"]: chart["lines"] for chart in ask(job, f"?{span}").json()["metrics"]}
        return charts, browser("vera").get(f"/jobs/{job.pk}/metrics").context["use"].now

    charts, use = seen()
    old = RunSample.objects.filter(run__replica__name="workerpool1-0")
    old.update(gpu_count=None, gpu_load=None, gpu_memory_mb=None, gpu_watts=None, gpu_celsius=None)
    then, used = seen()
    assert then == charts and len(charts["gpuPower"]) == 3
    assert [(line.gpu, line.gpu_share, line.gpu_memory) for line in used] == [
        (line.gpu, line.gpu_share, line.gpu_memory) for line in use
    ]
    assert use[1].gpu == "2 GPUs" and use[1].gpu_memory


def test_all_gpus_of_a_replica_are_one_line():
    """Power is a sum, utilization a mean, temperature the highest; a card that reports nothing is left out."""
    grid = Grid(Span(0, 15, 4), by_gpu=False)
    grid.add([Sample(20.0, 10, "a", [(50, 10, 100, 40), (100, 20, None, 60), (None,) * 4], {})])
    assert [grid.lines(metric)[0].values for metric in (UTILIZATION, POWER, HEAT)] == [
        [None, 75, None, None],
        [None, 100, None, None],
        [None, 60, None, None],
    ]


def test_samples_of_one_step_are_joined_and_those_outside_left_out():
    grid = Grid(Span(0, 30, 2), by_gpu=True)
    at = ((-1, 9), (0, 10), (29, 20), (59, 7), (60, 9))
    grid.add(Sample(float(when), 10, "a", [(load, None, None, load)], {}) for when, load in at)
    assert grid.lines(UTILIZATION)[0].values == [15, 7] and grid.lines(HEAT)[0].values == [20, 7]


def test_a_long_sample_that_began_earlier_reaches_into_the_span():
    grid = Grid(Span(600, 60, 3), by_gpu=True)
    grid.add([Sample(60.0, 600, "a", [], {"cpu": 1.5})])
    assert grid.lines(BY_NAME["cpu"])[0].values == [1.5, None, None]


def test_the_newest_points_are_a_part_of_the_page(ask, project, cast):
    job = a_job(project, cast.bob, replicas=3, host=a_host(gpus=2))
    sampled(job, timezone.now() - timedelta(minutes=1), minutes=10)
    whole = ask(job).json()
    some = json.loads(newest_points(job, {"replicas": "workerpool1-1,workerpool0-0"}, timezone.now()))
    points = json.loads(newest_points(job, {}, timezone.now()))
    assert points["count"] == 8 and points["step"] == whole["step"] and points["running"] is True
    for chart, of in zip(points["metrics"], whole["metrics"], strict=True):
        assert chart["name"] == of["name"]
        assert [line["values"] for line in chart["lines"]] == [line["values"][-8:] for line in of["lines"]]
    assert [line["name"] for line in some["metrics"][0]["lines"]] == ["workerpool0-0", "workerpool1-1"]
    # A page that is zoomed is sent the newest points, for the time when it is not.
    zoomed = {"from": "2026-11-21T12:00:00Z", "to": "2026-11-21T12:10:00Z"}
    assert json.loads(newest_points(job, zoomed, timezone.now())) == points


@pytest.mark.parametrize("step", [15, 60, 600])
def test_rows_of_many_replicas_give_the_same_lines_as_samples(step):
    dice = random.Random(step)
    names = ("cpu", "memory", "gpuTemperature", "diskFree", "networkSend")
    span = Span(6_000, step, 40)
    rows = [
        (
            f"workerpool0-{dice.randrange(4)}",
            dice.randrange(5_000, 6_000 + 45 * step),
            dice.choice((10, 60, 600)),
            [dice.choice((None, dice.randrange(1_000))) for _ in names[:-1]] + [None],
        )
        for _ in range(2_000)
    ]
    one, other = Grid(span, False), Grid(span, False)
    one.add_rows(names, rows)
    other.add(
        Sample(at, seconds, replica, (), dict(zip(names, values, strict=True)))
        for replica, at, seconds, values in rows
    )

    def found(grid):
        lines = {name: {line.name: line.values for line in grid.lines(BY_NAME[name])} for name in names}
        return lines, [grid.bands(BY_NAME[name]) for name in names]

    assert found(one) == found(other)
    assert found(one)[0]["networkSend"] == {} and len(found(one)[0]["cpu"]) == 4


@pytest.fixture
def gangs(project, cast, monkeypatch):
    """A job of 12 replicas, one of them restarted, with two GPUs or none, and values that some hosts do not tell."""
    job, now, dice = a_job(project, cast.bob, host=a_host(gpus=2)), timezone.now(), random.Random(7)
    first = Run.objects.get(job=job)
    for number in range(11):
        replica = job.replicas.create(name=f"workerpool1-{number}", pool=1, index=number, state="RUNNING")
        for start in range(2 if number == 4 else 1):
            names = {"pk": f"{job.pk}-{number}-{start}", "number": start, "replica": replica}
            Run.objects.create(
                **names,
                job=job,
                attempt=1,
                host=first.host,
                port=7000 + 20 * start + number,
                created_at=now,
                order={},
                cpus=4,
                memory_mb=4096,
            )
    rows = []
    for run in Run.objects.filter(job=job):
        for back in range(3, 3 * 3600, 10 if dice.random() < 0.5 else 9):
            coarse = back > 3600
            if coarse and back % 60 > 9:
                continue
            at = now - timedelta(seconds=back)
            at = start_of_step(at, 60) if coarse else at
            tells = dice.random() < 0.8
            gpus = [[dice.randrange(101), dice.randrange(9000)] for _ in range(2 * (run.number == 0))]
            rows.append(
                RunSample(
                    run=run,
                    step=60 if coarse else 10,
                    at=at,
                    cpu=dice.uniform(0, 4),
                    memory_mb=dice.randrange(4096) if tells else None,
                    gpus=gpus,
                    gpu_power=[dice.randrange(700) for _ in gpus] if tells else None,
                    net_rx=dice.randrange(10**10) if tells else None,
                    disk_free_mb=dice.randrange(500_000),
                )
            )
    samples.save(list({(row.run_id, row.step, row.at): row for row in rows}.values()))
    monkeypatch.setattr(metrics, "MAX_ROWS", 600)
    return job, now


@pytest.mark.parametrize("span", ["hour", "all"])
@pytest.mark.parametrize("some", [(), tuple(f"workerpool1-{number}" for number in range(9))])
def test_the_database_joins_many_replicas_as_their_rows_are_joined(gangs, monkeypatch, span, some):
    """Also in the second view, for which it reads only the steps that are not over."""
    job, now = gangs
    asked = metrics.Asked(replicas=some, span=span)
    read = metrics.read_bands
    by_database = metrics._metrics(job, asked, now)
    again = metrics._metrics(job, asked, now)
    monkeypatch.setattr(metrics, "_bands", lambda *arguments: None)
    by_rows = metrics._metrics(job, asked, now)
    assert read is metrics.read_bands and by_rows.thinned and by_rows.bands
    assert {chart.metric.name for chart in by_rows.charts} >= {"cpu", "gpuUtilization", "networkReceive"}
    assert by_database == by_rows and again == by_rows


def test_steps_that_are_over_are_not_read_again(gangs, monkeypatch):
    job, now = gangs
    asked, read, seen = metrics.Asked(), bands._read, []

    def reads(job_id, replicas, windows, slice_s):
        seen.append(sorted({begin for begin, _at, _seconds in windows}))
        return read(job_id, replicas, windows, slice_s)

    monkeypatch.setattr(bands, "_read", reads)
    step = metrics._metrics(job, asked, now).span.step
    soon = start_of_step(now, step) + timedelta(seconds=step)
    for after_s, cpu in ((0, 1.5), (6, 3.5)):
        at = soon + timedelta(seconds=after_s)
        samples.save([RunSample(run=run, step=10, at=at, cpu=cpu) for run in Run.objects.filter(job=job)])
        later = metrics._metrics(job, asked, at + timedelta(seconds=2))
    assert len(seen[0]) > 10 and len(seen[1]) <= 3 and len(seen[2]) <= 3
    assert seen[0][-1] < seen[1][-1] == seen[2][-1] == soon.timestamp()
    shared_answers.forget_all()
    assert metrics._metrics(job, asked, at + timedelta(seconds=2)) == later and len(seen[3]) > 10


def test_samples_of_an_older_version_are_joined_by_their_lists(gangs):
    """Those have no sums of their GPUs, which the database would need."""
    job, now = gangs
    before = metrics._metrics(job, metrics.Asked(), now)
    RunSample.objects.update(gpu_count=None, gpu_load=None, gpu_memory_mb=None, gpu_watts=None)
    shared_answers.forget_all()
    after = metrics._metrics(job, metrics.Asked(), now)
    assert [chart.metric.name for chart in after.charts] == [chart.metric.name for chart in before.charts]
