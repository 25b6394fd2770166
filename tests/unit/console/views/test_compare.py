"""Jobs beside each other: what differs, what is equal, and who may see it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs.models import Replica, Run, RunSample
from tests.unit.console.views.example_rows import a_host, a_job, one_line

MINUTE = timedelta(minutes=1)


@pytest.fixture
def pair(project, cast):
    """Two jobs that differ in a variable, a label, their outcome and their use of GPUs."""
    now = timezone.now()
    made = []
    for number, (state, rate, load) in enumerate((("SUCCEEDED", "0.1", 90), ("FAILED", "0.3", 20))):
        host = a_host(gpus=1)
        job = a_job(
            project,
            cast.bob,
            state,
            name=f"run-{number}",
            replicas=2,
            host=host,
            phase="closed",
            labels={"team": "nlp", "try": rate},
            created_at=now - timedelta(minutes=70),
            started_at=now - timedelta(minutes=60 - number),
            ended_at=now,
            error_message="It broke." * number,
        )
        job.spec["workerPoolSpecs"][0]["containerSpec"]["env"] = [
            {"name": "LR", "value": rate},
            {"name": "TOKEN", "secret": True},
        ]
        job.save()
        for run in Run.objects.filter(job=job):
            for back in range(30):
                at = now - timedelta(seconds=10 * back)
                RunSample.objects.create(run=run, step=10, at=at, cpu=1, memory_mb=512, gpus=[[load, 1024]])
        made.append(job)
    Replica.objects.filter(job=made[1], name="workerpool1-0").update(restarts=3)
    return made


def asked(jobs):
    return "/jobs/compare?" + "&".join(f"job={job.pk}" for job in jobs)


def section(answer, title):
    return next(one for one in answer.context["comparison"].sections if one.title == title)


def test_what_differs_is_shown_and_what_is_equal_is_folded(browser, pair):
    answer = browser("vera").get(asked(pair))
    outcome = {row.name: row.values for row in section(answer, "Outcome").different}
    assert outcome == {
        "State": ("Succeeded", "Failed"),
        "Error": ("", "It broke."),
        "Restarts of replicas": ("0", "3"),
    }
    durations = {row.name: row.values for row in section(answer, "Durations").different}
    assert durations["Waited"] == (MINUTE * 10, MINUTE * 11)
    assert durations["Ran"] == (MINUTE * 60, MINUTE * 59) and "10 min" in answer.text
    labels = section(answer, "Labels")
    assert [row.values for row in labels.different] == [("0.1", "0.3")]
    assert [row.name for row in labels.equal] == ["team"]
    spec = section(answer, "Specification")
    assert [(row.name, row.values) for row in spec.different] == [
        ("workerPoolSpecs[0].containerSpec.env.LR", ("0.1", "0.3"))
    ]
    equal = {row.name: row.values[0] for row in spec.equal}
    assert equal["workerPoolSpecs[0].containerSpec.env.TOKEN"] == "(secret)"
    assert "echo hi" in equal["workerPoolSpecs[0].containerSpec.command"]
    page = one_line(answer.text)
    assert "What is equal in all of them" in page and "2 jobs compared" in page


def test_metrics_lie_over_each_other_with_their_numbers(browser, pair):
    answer = browser("vera").get(asked(pair))
    overlays = {one.title: one for one in answer.context["comparison"].overlays}
    assert [(curve.mean, curve.most) for curve in overlays["GPU"].curves] == [
        *(("90 %", "90 %"), ("20 %", "20 %"))
    ]
    # The second line lies lower: y grows downwards.
    heights = [float(curve.path.split(" ")[1]) for curve in overlays["GPU"].curves]
    assert heights[0] < heights[1] and answer.text.count('class="curve-2" d="M0.0') == 4
    assert answer.text.count("<figure") == 4


def test_a_job_without_samples_is_compared_too(browser, pair, project, cast):
    waiting = a_job(project, cast.bob, state="QUEUED", name="waits")
    answer = browser("vera").get(asked([*pair, waiting]))
    durations = {row.name: row.values for row in section(answer, "Durations").different}
    assert durations["Ran"][2] == "not started"
    assert [curve.path for curve in answer.context["comparison"].overlays[0].curves][2] == ""
    only = browser("vera").get(asked([waiting, a_job(project, cast.bob, state="QUEUED")]))
    assert "No samples of these jobs are left." in only.text


def test_one_job_that_a_person_may_not_see_hides_the_whole_page(browser, pair, cast):
    theirs = a_job(cast.elsewhere, cast.charlie, name="secret project")
    answer = browser("vera").get(asked([*pair, theirs]))
    assert answer.status_code == 404 and "secret project" not in answer.text and "run-0" not in answer.text
    assert browser("charlie").get(asked(pair)).status_code == 404
    assert browser("root").get(asked([*pair, theirs])).status_code == 200
    assert browser("vera").get(f"{asked(pair)}&job=99").status_code == 404


@pytest.mark.parametrize(
    "query", ["", "job=1", "job=1&job=1", "&".join(f"job={n}" for n in range(6)), "job=x"]
)
def test_fewer_than_two_or_more_than_five_jobs_lead_back_to_the_list(browser, query):
    page = browser("vera").get(f"/jobs/compare?{query}", follow=True)
    assert page.redirect_chain == [("/jobs/", 302)] and "Select 2 to 5 jobs to compare." in page.text


def test_the_boxes_of_the_list_choose_what_is_compared(browser, pair):
    ids = [job.pk for job in pair]
    answer = browser("vera").post("/jobs/bulk", {"act": "compare", "job": ids, "filters": ""})
    assert answer.status_code == 302 and answer["Location"] == asked(pair)
    assert 'value="compare"' in browser("vera").get("/jobs/").text


def test_the_number_of_queries_does_not_grow_with_the_replicas(browser, project, cast):
    client, host = browser("vera"), a_host(gpus=1)

    def count(replicas):
        # Metrics are kept for some seconds, so each count has jobs of its own.
        jobs = [a_job(project, cast.bob, replicas=replicas, host=host) for _ in range(2)]
        with CaptureQueriesContext(connection) as made:
            assert client.get(asked(jobs)).status_code == 200
        return len(made)

    client.get("/jobs/")
    assert count(1) == count(60)
