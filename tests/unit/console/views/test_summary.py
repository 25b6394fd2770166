"""The summary beside the new-job form: it follows each change, says what it knows, and has no value of a secret."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agents.infra import shared_answers
from agents.models import HostStatus
from jobs.models import Job, Quota
from tests.unit.console.views.example_rows import a_host, a_job, a_run
from tests.unit.console.views.test_new_job import FORM, SECRET_ROWS

GPUS = {"pool0-accelerator_type": "NVIDIA_L4", "pool0-accelerator_count": "2"}
WORKERS = {
    "pool1-on": "on",
    "pool1-same": "on",
    "pool1-replica_count": "3",
    "pool1-accelerator_type": "NVIDIA_L4",
    "pool1-accelerator_count": "2",
}


@pytest.fixture
def summary(browser):
    bob = browser("bob")

    def ask(**changes):
        shared_answers.forget_all()
        return bob.post("/jobs/new/summary", {**FORM, **changes}, headers={"HX-Request": "true"})

    return ask


def test_the_summary_follows_each_change(summary):
    a_host("h1", gpus=8, cpus=64)
    seen = summary(**GPUS).context["summary"]
    assert (seen.replicas, seen.pools, seen.gpus, seen.start.tone) == (1, 1, (("NVIDIA_L4", 2),), "good")
    answer = summary(**GPUS, **WORKERS)
    seen = answer.context["summary"]
    assert (seen.replicas, seen.pools, seen.gpus) == (4, 2, (("NVIDIA_L4", 8),))
    assert "4 replicas on h1" in seen.start.text
    page = answer.content.decode()
    assert page.count('hx-swap-oob="true"') == 2 and 'id="summary-line"' in page and 'id="offers"' in page
    assert "<html" not in page and "4 in 2 pools" in page and "8 × NVIDIA_L4" in page
    assert summary(**GPUS, **{**WORKERS, "pool1-replica_count": "4"}).context["summary"].start.tone == "bad"


def test_offers_are_sent_again_only_when_they_change(summary):
    a_host("h1", gpus=8)
    first = summary(**GPUS)
    offered = first.context["offered"]
    assert 'id="offers"' in first.content.decode() and "1 hour" in first.content.decode()
    again = summary(**GPUS, offered=offered).content.decode()
    assert 'id="offers"' not in again and 'id="summary-line"' in again
    assert 'id="offers"' in summary(**GPUS, offered=offered.replace("default", "other")).content.decode()


def test_what_is_missing_is_named_and_the_rest_is_said(summary):
    """A name and a program change neither replicas nor GPUs."""
    a_host(gpus=8)
    answer = summary(**GPUS, **{"display_name": "", "pool0-program": ""})
    page, seen = answer.content.decode(), answer.context["summary"]
    assert seen.gpus == (("NVIDIA_L4", 2),) and seen.start.tone == "good"
    assert "Name is required." in page and "Program is required." in page and not answer.context["codes"]
    unread = summary(**GPUS, **{"pool0-replica_count": "9"})
    assert (
        unread.context["summary"].replicas is None
        and "must be 1 in the first pool" in unread.content.decode()
    )


def test_quota_before_and_after_is_shown(summary, project, cast):
    host = a_host(gpus=8)
    job = a_job(project, cast.bob)
    a_run(job, job.replicas.get(), host, gpus=list(host.gpus.all()[:4]))
    Quota.objects.create(project=project, metric="gpus", accelerator_type="NVIDIA_L4", value=5)
    Quota.objects.create(project=project, metric="running", each=True, value=7)
    Quota.objects.create(project=project, metric="running", user=cast.alice, value=1)
    seen = summary(**GPUS).context["summary"]
    mine, whole = seen.quotas
    assert (mine.who, mine.what, mine.after, mine.limit, mine.over) == (
        "bob in project default",
        "running jobs",
        str(int(mine.before) + 1),
        "7",
        False,
    )
    assert (whole.what, whole.before, whole.after, whole.limit, whole.over) == (
        "NVIDIA_L4",
        "4",
        "6",
        "5",
        True,
    )
    assert seen.start.headline == "It would wait for quota."
    Quota.objects.filter(metric="gpus").update(value=1)
    assert summary(**GPUS).context["summary"].start.tone == "bad"


def test_the_expected_start_is_when_what_runs_is_over(summary, project, cast):
    host = a_host("h1", gpus=2)
    now = timezone.now()
    job = a_job(project, cast.bob)
    Job.objects.filter(pk=job.pk).update(started_at=now, timeout_s=3600, state="RUNNING")
    held = list(host.gpus.all())
    a_run(job, job.replicas.get(), host, gpus=held, gpu_uuids=[gpu.uuid for gpu in held])
    answer = summary(**GPUS)
    start = answer.context["summary"].start
    assert start.tone == "wait" and timedelta(hours=1) <= start.at - now <= timedelta(hours=1, minutes=4)
    assert "at the latest, when enough of what runs is over" in answer.content.decode()
    a_host("h2", gpus=8, status=HostStatus.UNREACHABLE)
    unknown = summary(**{**GPUS, "pool0-accelerator_count": "8"})
    assert unknown.context["summary"].start.unknown
    assert "When it could start cannot be known." in unknown.content.decode()


def test_no_answer_has_a_secret_value(summary):
    a_host()
    answer = summary(**SECRET_ROWS)
    page = answer.content.decode()
    assert "hf_very-secret" not in page and "HF_TOKEN" in page
    codes = {code.name: code for code in answer.context["codes"]}
    assert "Fill in the value of HF_TOKEN" in codes["curl"].note
    assert not codes["SDK"].text and "no field for secret variables" in codes["SDK"].note


def test_the_page_without_scripts_has_the_same_summary(browser):
    a_host("h1", gpus=8)
    answer = browser("bob").post("/jobs/new", {**FORM, **GPUS, "action": "check"})
    page = answer.content.decode()
    assert answer.context["summary"].gpus == (("NVIDIA_L4", 2),) and 'id="summary-body"' in page
    assert "1 replica on h1" in page and "curl --fail-with-body" in page
    assert browser("bob").get("/jobs/new").context["summary"].replicas == 1


def test_a_refused_field_still_says_what_was_asked_for(browser, project):
    a_host(gpus=8)
    Quota.objects.create(project=project, metric="gpus", accelerator_type="NVIDIA_L4", value=1)
    answer = browser("bob").post("/jobs/new", {**FORM, **GPUS})
    assert answer.context["draft"].pools[0].errors["accelerator_count"]
    assert answer.context["summary"].gpus == (("NVIDIA_L4", 2),)


def test_the_summary_takes_the_same_number_of_queries_for_many_hosts_and_replicas(summary, project):
    Quota.objects.create(project=project, metric="running", value=7)
    a_host(gpus=8)
    counts = []
    for replicas in ("2", "900"):
        with CaptureQueriesContext(connection) as asked:
            answer = summary(**GPUS, **{**WORKERS, "pool1-replica_count": replicas})
        assert answer.status_code == 200
        counts.append(len(asked))
        for _ in range(20):
            a_host(gpus=8)
    # Some reads are needed only while the job does not surely fit.
    assert counts[1] <= counts[0] + 4 and max(counts) < 56, counts
