"""`GET /api/v1/queue`: who waits, in which order, for what, since when, and when each job will start."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agents.infra import shared_answers
from jobs.models import ExpectedStart, Job
from tests.unit.console.views.example_rows import a_job

QUEUE = "/api/v1/queue"
GANG = '[[0,1,4.0,1000,"NVIDIA_L4",8],[1,3,2.0,1000,"",0]]'


def waits(project, owner, name, **changes):
    known = {"resource_request": GANG, "gpu_count": 8, "reason": "Needs 8 GPUs; 3 are free."}
    return a_job(project, owner, state="QUEUED", name=name, **{**known, **changes})


@pytest.fixture
def queue(project, cast):
    """Three jobs of the project and one of another, in the order last, foreign, first, spot."""
    first = waits(project, cast.bob, "first", earliest_start_at=timezone.now() + timedelta(hours=1))
    waits(project, cast.bella, "spot", spot=True, priority=100)
    waits(cast.elsewhere, cast.charlie, "foreign", priority=50)
    waits(project, cast.bob, "last", priority=100)
    a_job(project, cast.bob, name="runs")
    return first


def names(answer):
    return [(job.get("place"), job["displayName"]) for job in answer["jobs"]]


def test_the_queue_is_told_in_its_order_with_places_in_the_whole_of_it(script, queue):
    everything = script("root").get(QUEUE).json()
    assert names(everything) == [(1, "last"), (2, "foreign"), (3, "first"), (4, "spot")]
    mine = script("vera").get(QUEUE).json()
    assert names(mine) == [(1, "last"), (3, "first"), (4, "spot")]
    assert mine["totals"] == {"waiting": 4, "seen": 3, "gpus": 24}
    assert "foreign" not in str(mine) and names(script("charlie").get(QUEUE).json()) == [(2, "foreign")]
    assert script("loner").get(QUEUE).json()["jobs"] == []


def test_a_job_of_the_queue_is_told_with_what_it_waits_for(script, queue):
    told = script("vera").get(QUEUE).json()["jobs"][1]
    assert told.pop("queueTime").endswith("Z") and told.pop("earliestStartTime").endswith("Z")
    assert told.pop("expectedStart")["basis"] == "limits", "what is reserved for it"
    assert told == {
        "id": str(queue.pk),
        "place": 3,
        "displayName": "first",
        "project": "default",
        "owner": "bob",
        "location": "default",
        "wants": "1 × 8 NVIDIA_L4, 3 × 2 CPUs",
        "gpus": 8,
        "priority": "normal",
        "spot": False,
        "attempt": 1,
        "reason": "Needs 8 GPUs; 3 are free.",
    }


def test_a_job_that_is_set_aside_has_no_place(script, queue):
    Job.objects.filter(pk=queue.pk).update(rests_until=timezone.now() + timedelta(minutes=1))
    told = script("vera").get(QUEUE).json()["jobs"]
    assert names({"jobs": told}) == [(1, "last"), (3, "spot"), (None, "first")] and told[2]["restsUntil"]


def test_the_queue_is_told_in_pages(script, queue):
    vera = script("vera")
    first = vera.get(QUEUE, {"pageSize": 2}).json()
    second = vera.get(QUEUE, {"pageSize": 2, "pageToken": first["nextPageToken"]}).json()
    assert names(first) + names(second) == [(1, "last"), (3, "first"), (4, "spot")]
    assert "nextPageToken" not in second
    # It was placed meanwhile: the queue begins anew, rather than leave somebody out.
    Job.objects.filter(pk=first["nextPageToken"]).update(state="PENDING")
    shared_answers.forget_all()
    again = vera.get(QUEUE, {"pageToken": first["nextPageToken"]}).json()
    assert names(again) == [(1, "last"), (3, "spot")]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"project": "elsewhere"}, "project must be the name of one of your projects"),
        ({"pageToken": "x"}, "pageToken must be a nextPageToken"),
        ({"state": "QUEUED"}, "There is no parameter 'state'. Known are pageSize, pageToken, project"),
    ],
)
def test_a_value_that_is_not_understood_is_refused(script, queue, query, words):
    answer = script("vera").get(QUEUE, query)
    assert answer.status_code == 400 and words in answer.json()["error"]["message"]
    assert len(script("vera").get(QUEUE, {"project": "default"}).json()["jobs"]) == 3


def test_the_number_of_queries_does_not_grow_with_the_queue(script, queue, project, cast):
    counts = []
    for more in (0, 20):
        for _ in range(more):
            waits(project, cast.bob, "more")
        shared_answers.forget_all()
        vera = script("vera")
        with CaptureQueriesContext(connection) as asked:
            vera.get(QUEUE)
        counts.append(len(asked))
        assert not [query for query in asked if '"spec"' in query["sql"]]
    assert counts[0] == counts[1]


def test_rest_says_it_of_a_job_and_of_the_queue(script, queue):
    Job.objects.filter(pk=queue.pk).update(earliest_start_at=None)
    late = datetime(2099, 1, 1, 18, tzinfo=UTC)
    ExpectedStart.objects.create(job=queue, limit_at=late)
    told = {"from": "2099-01-01T18:00:00.000000Z", "until": "2099-01-01T18:00:00.000000Z", "basis": "limits"}
    bob = script("bob")
    assert bob.get(f"/api/v1/jobs/{queue.pk}").json()["expectedStart"] == told
    assert bob.get("/api/v1/queue").json()["jobs"][1]["expectedStart"] == told
    Job.objects.filter(pk=queue.pk).update(state="RUNNING")
    assert "expectedStart" not in bob.get(f"/api/v1/jobs/{queue.pk}").json()


PREVIEW, REORDER = "/api/v1/queue:preview", "/api/v1/queue:reorder"


def send(client, address, body):
    return client.post(address, json.dumps(body), content_type="application/json")


def ids_of(script):
    shared_answers.forget_all()
    return [job["id"] for job in script("root").get(QUEUE).json()["jobs"]]


def test_a_move_is_previewed_done_and_told(script, queue):
    root, before = script("root"), ids_of(script)
    asked = {"jobs": [before[2]], "to": "top"}
    told = send(root, PREVIEW, asked).json()
    assert told["moved"][0]["place"] == 3 and told["moved"][0]["newPlace"] == 1
    assert told["withinProject"] is None and [each["id"] for each in told["later"]] == before[:2]
    assert ids_of(script) == before
    assert send(root, REORDER, {**asked, "stamp": told["stamp"]}).status_code == 200
    assert ids_of(script) == [before[2], *before[:2], before[3]]
    assert root.get(QUEUE).json()["jobs"][0]["movedBy"] == "root"
    assert send(root, REORDER, {"jobs": [before[2]], "to": "automatic"}).status_code == 200
    assert ids_of(script) == before


def test_a_job_of_others_is_no_place_to_move_to(script, queue):
    mine, foreign = str(queue.pk), ids_of(script)[1]
    for before in (foreign, "7"):
        answer = send(script("alice"), PREVIEW, {"jobs": [mine], "to": "before", "before": before})
        assert answer.status_code == 400
        assert "is not among those that they pass" in answer.json()["error"]["message"]


def test_the_preview_of_a_long_queue_names_the_first_and_counts_the_others(script, queue, project, cast):
    row = waits(project, cast.bob, "one of many")
    known = {field.attname: getattr(row, field.attname) for field in Job._meta.concrete_fields}
    Job.objects.bulk_create(Job(**{**known, "id": row.pk + number}) for number in range(1, 601))
    told = send(script("root"), PREVIEW, {"jobs": [str(row.pk + 600)], "to": "top"}).json()
    assert len(told["later"]) == 500 and told["notShown"] == {"sooner": 0, "later": 103}
    assert [each["place"] for each in told["later"]] == list(range(1, 501))


def test_an_old_stamp_is_refused_with_409(script, queue):
    root, before = script("root"), ids_of(script)
    answer = send(root, REORDER, {"jobs": [before[2]], "to": "top", "stamp": "old"})
    assert answer.status_code == 409 and "has changed since you looked" in answer.json()["error"]["message"]
    assert ids_of(script) == before


def test_an_admin_of_a_project_moves_its_jobs_only(script, queue):
    before = ids_of(script)
    alice = script("alice")
    told = send(alice, PREVIEW, {"jobs": [str(queue.pk)], "to": "top"}).json()
    assert told["withinProject"] == "default" and "foreign" not in str(told)
    assert send(alice, PREVIEW, {"jobs": [before[1]], "to": "top"}).status_code == 404
    assert send(script("bob"), PREVIEW, {"jobs": [str(queue.pk)], "to": "top"}).status_code == 403
    assert send(script("loner"), PREVIEW, {"jobs": [str(queue.pk)], "to": "top"}).status_code == 404


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"to": "top"}, "jobs must be a list of ids"),
        ({"jobs": ["x"], "to": "top"}, "jobs must be a list of ids"),
        ({"jobs": ["1"], "to": "left"}, "to must be top, up, down, before or automatic"),
        ({"jobs": ["1"], "to": "before"}, "before must be the id of a job"),
        ({"jobs": ["1"], "to": "top", "before": "2"}, "before must be the id of a job"),
        ({"jobs": ["1"], "to": "top", "place": 1}, "place is not a field"),
    ],
)
def test_a_move_that_is_not_understood_is_refused(script, queue, body, words):
    answer = send(script("root"), PREVIEW, body)
    assert answer.status_code == 400 and words in answer.json()["error"]["message"]
