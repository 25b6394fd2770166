"""`POST /api/v1/jobs:batchCancel` and the like: one act on many jobs."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs import services
from jobs.models import Job, JobLabel, Transition
from tests.unit.console.views.example_rows import a_host, document


def post(client, act, **body):
    answer = client.post(f"/api/v1/jobs:{act}", body, content_type="application/json")
    return answer.status_code, answer.json()


@pytest.fixture
def submit(project, cast):
    a_host()

    def submit_as(user, name="train", project=project, **more):
        asked = {**document(name), **more}
        return services.submit(project, user, asked, "", None, timezone.now())

    return submit_as


def test_only_jobs_that_the_person_may_cancel_are_cancelled(script, cast, submit):
    mine, other = submit(cast.bob), submit(cast.bella)
    foreign = submit(cast.charlie, project=cast.elsewhere)
    over = submit(cast.bob)
    services.cancel(over, "bob", timezone.now())
    asked = [mine, other, foreign, over]
    status, answer = post(script("bob"), "batchCancel", jobs=[str(job.pk) for job in asked])
    assert status == 200 and answer["done"] == [str(mine.pk)]
    assert {each["job"]: each["message"] for each in answer["refused"]} == {
        str(other.pk): "You may not do this to this job.",
        str(foreign.pk): "There is no job with this id that you may see.",
        str(over.pk): "It is over already.",
    }
    assert list(Job.objects.filter(state="CANCELLED").order_by("pk").values_list("pk", flat=True)) == sorted(
        [mine.pk, over.pk]
    )


def test_a_viewer_and_a_stranger_change_nothing(script, cast, submit):
    job = submit(cast.bob)
    for who in ("vera", "charlie", "loner"):
        for act, more in (("batchCancel", {}), ("batchLabel", {"labels": {"a": "b"}}), ("batchClone", {})):
            status, answer = post(script(who), act, jobs=[str(job.pk)], **more)
            assert (status, answer["done"], len(answer["refused"])) == (200, [], 1)
    assert Job.objects.count() == 1 and Job.objects.get().state == "QUEUED" and not JobLabel.objects.exists()


def test_jobs_are_deleted_when_they_are_over(script, cast, submit):
    over, waits = submit(cast.bob), submit(cast.bob)
    services.cancel(over, "bob", timezone.now())
    _, answer = post(script("alice"), "batchDelete", jobs=[str(over.pk), str(waits.pk)])
    assert answer["done"] == [str(over.pk)] and "Only a job that is over" in answer["refused"][0]["message"]
    assert [job.pk for job in Job.objects.all()] == [waits.pk]


def test_jobs_are_labelled_and_those_of_the_document_stay(script, cast, submit):
    plain, labelled = submit(cast.bob), submit(cast.bob, labels={"team": "nlp"})
    ids = [str(plain.pk), str(labelled.pk)]
    _, answer = post(script("bob"), "batchLabel", jobs=ids, labels={"team": "cv", "best": ""})
    assert answer["done"] == ids[:1]
    assert answer["refused"][0]["message"].startswith(
        "The label team came with the job when it was submitted"
    )
    assert dict(JobLabel.objects.filter(job=plain).values_list("key", "value")) == {"best": "", "team": "cv"}
    assert dict(JobLabel.objects.filter(job=labelled).values_list("key", "value")) == {"team": "nlp"}
    line = Transition.objects.get(job=plain, kind="label")
    assert (line.cause, line.actor) == ("It was labelled best, team=cv.", "bob")
    assert Job.objects.get(pk=plain.pk).labels == {}, "the submitted document does not change"
    found = script("vera").get("/api/v1/jobs", {"label": "team=cv"}).json()["jobs"]
    assert [job["id"] for job in found] == ids[:1] and found[0]["labels"] == {"best": "", "team": "cv"}


def test_labels_that_were_given_can_be_changed_and_taken_away(script, cast, submit):
    job = submit(cast.bob, labels={"team": "nlp"})
    ask = {"jobs": [str(job.pk)]}
    for body, left in (
        ({"labels": {"best": "1", "seen": ""}}, {"best": "1", "seen": "", "team": "nlp"}),
        ({"labels": {"best": "2"}, "remove": ["seen", "unknown"]}, {"best": "2", "team": "nlp"}),
    ):
        assert post(script("bob"), "batchLabel", **ask, **body)[1]["done"] == ask["jobs"]
        assert dict(JobLabel.objects.filter(job=job).values_list("key", "value")) == left
    refused = post(script("bob"), "batchLabel", **ask, remove=["team", "best"])[1]["refused"]
    assert "came with the job" in refused[0]["message"] and JobLabel.objects.filter(key="best").exists()
    assert post(script("bob"), "batchLabel", **ask)[0] == 400


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({"Team": "x"}, "A key must be 1 to 64 lowercase"),
        ({"team": "X Y"}, "A value must be at most 64 lowercase"),
        ({"trainyard-priority": "high"}, "is read when a job is submitted"),
        ({f"key-{n}": "" for n in range(65)}, "A job has 64 labels at most"),
    ],
)
def test_a_label_that_cannot_be_is_refused_with_the_reason(script, cast, submit, labels, words):
    job = submit(cast.bob)
    _, answer = post(script("bob"), "batchLabel", jobs=[str(job.pk)], labels=labels)
    assert answer["done"] == [] and words in answer["refused"][0]["message"]
    assert not JobLabel.objects.exists() and not Transition.objects.filter(kind="label").exists()


def test_copies_are_made_once_for_one_request(script, cast, submit):
    jobs = [submit(cast.bella, name=f"job-{n}", labels={"team": "nlp"}) for n in range(2)]
    asked = {"jobs": [str(job.pk) for job in jobs], "requestId": "again"}
    _, answer = post(script("bob"), "batchClone", **asked)
    made = Job.objects.filter(pk__in=answer["done"])
    assert {job.display_name for job in made} == {"job-0", "job-1"} and not answer["refused"]
    assert {(job.owner_name, job.labels["team"]) for job in made} == {("bob", "nlp")}
    assert post(script("bob"), "batchClone", **asked)[1] == answer and Job.objects.count() == 4


@pytest.mark.parametrize("jobs", [None, [], "17", ["x"], [1.5], list(range(201)), [{}]])
def test_a_list_of_jobs_that_is_none_is_refused(script, cast, jobs):
    status, answer = post(script("bob"), "batchCancel", jobs=jobs)
    assert status == 400 and "jobs must be a list of 1 to 200 ids" in answer["error"]["message"]


def test_the_rights_are_read_once_for_all_jobs(script, cast, submit):
    ids = [str(submit(cast.bella).pk) for _ in range(20)]
    counts = []
    for some in (ids[:1], ids):
        client = script("bob")
        with CaptureQueriesContext(connection) as asked:
            assert post(client, "batchCancel", jobs=some)[1]["done"] == []
        counts.append(len(asked))
    assert counts[0] == counts[1]
