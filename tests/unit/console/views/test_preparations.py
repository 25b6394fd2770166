"""What hosts prepare for a job: a panel on its page, live, and the same for scripts."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.utils import timezone

from agents.infra.texts import said
from console.parts import jobs as parts
from console.parts.part import Place
from console.presenters.preparations import SHOWN, panel
from jobs.models import HostOutputs, Job, Preparation, PreparationNeed, Run
from jobs.preparations import of_jobs, reasons
from tests.unit.console.views.example_rows import a_host, a_job, one_line


def prepare(job, host, key="abc", **changes):
    """All runs of the job wait for it."""
    now = timezone.now()
    known = {"kind": "image", "what": {}, "title": "the image lab/train:1", "created_at": now, "used_at": now}
    row = Preparation.objects.create(host=host, key=key, **{**known, **changes})
    for run in Run.objects.filter(job=job):
        PreparationNeed.objects.create(run=run, preparation=row)
    Run.objects.filter(job=job).update(preparing=True, phase="created", attempt=job.attempt)
    return row


@pytest.fixture
def job(project, cast):
    return a_job(project, cast.bob, "PENDING", host=a_host("gpu-a"))


def pulling(job):
    began = timezone.now() - timedelta(seconds=10)
    return prepare(
        job,
        job.runs.get().host,
        phase="WORKING",
        done=25_000_000,
        total=100_000_000,
        unit="bytes",
        message="pulling <lab/train:1>",
        tail="Copying blob\n<script>",
        began_at=began,
    )


def part_of(browser, job, person="bob"):
    page = browser(person).get(f"/jobs/{job.pk}/").text
    return page[page.index('<section id="job-preparations"') : page.index('id="job-strip"')]


def test_the_page_says_how_far_a_host_is(browser, job):
    pulling(job)
    part = part_of(browser, job)
    told = one_line(re.sub(r"<[^>]*>", " ", part)).replace("\xa0", " ")
    assert "gpu-a Preparing the image lab/train:1" in told and "0 of 1 are ready" in told
    assert 'max="100" value="25"' in part and re.search(r"25 % \(23\.8 MB / 95\.4 MB\) · \d+ s left", told)
    assert "pulling &lt;lab/train:1&gt;" in part and "Copying blob\n&lt;script&gt;" in part
    assert "<details" in part and "<details open" not in part


def test_the_head_says_that_the_job_waits_for_its_hosts(browser, job):
    """It said that the job is to be moved."""
    Job.objects.filter(pk=job.pk).update(
        reason=said("{host} prepares {what}", host="gpu-a", what="the image")
    )
    page = one_line(browser("bob").get(f"/jobs/{job.pk}/").text)
    assert "<strong> Waiting for its hosts </strong> <p>gpu-a prepares the image</p>" in page
    assert "To be moved" not in page


def test_the_panel_goes_when_all_is_ready(browser, job):
    row = pulling(job)
    Preparation.objects.filter(pk=row.pk).update(phase="READY")
    part = part_of(browser, job)
    assert "hidden" in part and "gpu-a" not in part


def test_a_running_job_does_not_show_what_others_wait_for(browser, job):
    pulling(job)
    Run.objects.update(preparing=False, phase="running")
    Preparation.objects.update(phase="FAILED")
    assert "gpu-a" not in part_of(browser, job)


def test_a_failure_stays_on_the_page_of_the_job_that_failed(browser, job):
    pulling(job)
    Run.objects.update(preparing=False, phase="closed", refusal="not_prepared")
    Preparation.objects.update(phase="FAILED", fault="user", message="manifest unknown")
    part = part_of(browser, job)
    assert "Failed" in part and "manifest unknown" in part and "<progress" not in part


def test_a_cancelled_job_shows_nothing(browser, job):
    pulling(job)
    Run.objects.update(stop_wanted_at=timezone.now())
    assert "gpu-a" not in part_of(browser, job)


def test_outputs_that_are_put_on_a_host_are_shown(browser, job):
    Run.objects.update(phase="created")
    HostOutputs.objects.create(
        job=job,
        host=job.runs.get().host,
        created_at=timezone.now(),
        fill_total=2000,
        fill_done=500,
    )
    part = part_of(browser, job)
    assert "the outputs of earlier runs" in part and 'value="25"' in part


def test_of_many_hosts_the_failed_and_the_slowest_are_shown(project, cast, django_assert_num_queries):
    job = a_job(project, cast.bob, "PENDING", replicas=64, host=a_host())
    hosts = [a_host(f"n-{number:02}") for number in range(64)]
    for number, host in enumerate(hosts):
        prepare(job, host, phase="WORKING", done=number, total=100)
    rows = Preparation.objects.order_by("host__name")
    for row, phase in ((rows[40], "FAILED"), (rows[50], "READY"), (rows[60], "WANTED")):
        Preparation.objects.filter(pk=row.pk).update(phase=phase)
    # One is not begun: whether it waits for files is asked once for all.
    with django_assert_num_queries(3):
        found = panel(job, True, timezone.now())
    assert [line.host for line in found.lines] == ["n-40", "n-60", *(f"n-0{number}" for number in range(6))]
    assert (len(found.lines), found.ready, found.failed, found.total) == (SHOWN, 1, 1, 64)
    assert found.more == 64 - SHOWN
    with django_assert_num_queries(3):
        of_jobs.stamp(job.pk)


def shipped(job, host, key, done, project_title="the code of the job", **changes):
    began = timezone.now() - timedelta(minutes=3)
    files = {"what": {"blobs": [{"sha256": key, "size": 1000}]}, "total": 1000, "unit": "bytes"}
    known = {"kind": "tree", "title": project_title, "phase": "WORKING", "began_at": began, "done": done}
    return prepare(job, host, key, **{**known, **files, **changes})


def told(browser, job):
    return one_line(re.sub(r"<[^>]*>", " ", part_of(browser, job))).replace("\xa0", " ")


@pytest.fixture
def busy(project, cast, job):
    """A job whose files are on their way to the host of `job`, where the files of `job` wait."""
    host = job.runs.get().host
    other = a_job(project, cast.alice, "PENDING", host=host)
    row = shipped(other, host, "a" * 64, 250)
    shipped(job, host, "b" * 64, 0)
    return other, row


def test_files_that_wait_for_a_busy_host_say_for_whom_since_when_and_how_far(browser, job, busy):
    other, row = busy
    words = f"The host gets the code of the job of job {other.pk} first (25 %)."
    assert words in told(browser, job) and "Its files wait since" in told(browser, job)
    [answer] = browser("bob").get(f"/api/v1/jobs/{job.pk}/preparations").json()["preparations"]
    assert answer["waitsFor"] == words
    reasons.explain(job.pk, timezone.now())
    job.refresh_from_db()
    assert str(job.reason) == f"gpu-a waits with the code of the job: {words}"
    assert "first" not in told(browser, other)
    before = of_jobs.stamp(job.pk)
    Preparation.objects.filter(pk=row.pk).update(done=500)
    assert of_jobs.stamp(job.pk) != before and "first (50 %)" in told(browser, job)
    Preparation.objects.filter(pk=row.pk).update(phase="READY")
    assert "first" not in told(browser, job)


def test_of_another_project_it_is_only_said_that_there_is_one(browser, job, busy, cast):
    other, row = busy
    Job.objects.filter(pk=other.pk).update(project=cast.elsewhere)
    Preparation.objects.filter(pk=row.pk).update(title="the image gs://hush/x.tar")
    text = told(browser, job)
    assert "The host gets files of another project first (25 %)." in text
    assert "hush" not in text and str(other.pk) not in text


def test_what_is_loaded_after_it_came_holds_up_nobody(browser, job, busy):
    Preparation.objects.filter(pk=busy[1].pk).update(total=7000)
    assert "first" not in told(browser, job)


def test_files_that_wait_because_other_hosts_get_theirs_say_so(browser, job, project, cast):
    for number in range(2):
        host = a_host(f"n-{number}")
        shipped(a_job(project, cast.alice, "PENDING", host=host), host, f"{number}" * 64, 10)
    shipped(job, job.runs.get().host, "b" * 64, 0)
    assert "Files go to a few hosts at a time: now to 2 other hosts." in told(browser, job)


def test_the_part_is_sent_again_when_a_host_gets_on(job, cast):
    part = next(part for part in parts.JOB_OVERVIEW if part.name == "job-preparations")
    place = Place.of("job", {"job_id": job.pk}, "")
    row = pulling(job)
    stamps = {part.stamp(cast.bob, place)}
    for changes in ({"done": 26_000_000}, {"tail": "more"}, {"message": "loading"}, {"phase": "FAILED"}):
        Preparation.objects.filter(pk=row.pk).update(**changes)
        stamps.add(part.stamp(cast.bob, place))
    assert len(stamps) == 5
    assert 'id="job-preparations"' in part.render(cast.bob, place, None)


def test_scripts_get_the_same(browser, job):
    pulling(job)
    answer = browser("bob").get(f"/api/v1/jobs/{job.pk}/preparations").json()
    (found,) = answer["preparations"]
    assert answer["totalSize"] == 1 and re.fullmatch(r"[\d-]+T.*Z", found.pop("startTime"))
    assert re.fullmatch(r"\d+s", found.pop("timeLeft"))
    assert found == {
        "host": "gpu-a",
        "kind": "image",
        "title": "the image lab/train:1",
        "state": "WORKING",
        "done": "25000000",
        "total": "100000000",
        "unit": "bytes",
        "message": "pulling <lab/train:1>",
        "output": "Copying blob\n<script>",
    }


def test_the_answer_to_scripts_is_bounded(browser, job):
    prepare(job, a_host(), phase="FAILED")
    prepare(job, a_host())
    answer = browser("bob").get(f"/api/v1/jobs/{job.pk}/preparations?pageSize=1").json()
    assert [each["state"] for each in answer["preparations"]] == ["FAILED"] and answer["totalSize"] == 2
    assert browser("bob").get(f"/api/v1/jobs/{job.pk}/preparations?pageSize=x").status_code == 400


def test_who_may_not_see_logs_does_not_see_the_output(job):
    pulling(job)
    (line,) = panel(job, False, timezone.now()).lines
    assert line.tail == "" and line.message
