"""`GET /api/v1/jobs`: the jobs of all projects of a person, searched, sorted, in pages, with totals."""

from __future__ import annotations

import pytest

from tests.unit.console.views.example_rows import a_job

LIST = "/api/v1/jobs"


@pytest.fixture
def jobs(project, cast):
    made = [
        a_job(
            project,
            cast.bob,
            name=f"job {n}",
            state="QUEUED",
            gpu_count=n,
            labels={"team": "nlp" if n % 2 else "cv"},
            reason="Needs GPUs.",
        )
        for n in range(5)
    ]
    a_job(cast.elsewhere, cast.charlie, name="foreign", gpu_count=64, labels={"team": "nlp"})
    return made


def test_a_job_is_told_with_what_the_page_shows(script, jobs):
    answer = script("vera").get(LIST, {"label": "team=nlp", "sort": "-gpus"}).json()
    assert [job["displayName"] for job in answer["jobs"]] == ["job 3", "job 1"]
    first = answer["jobs"][0]
    assert first.pop("createTime").endswith("Z")
    assert first == {
        "id": str(jobs[3].pk),
        "displayName": "job 3",
        "project": "default",
        "owner": "bob",
        "state": "QUEUED",
        "note": "Needs GPUs.",
        "labels": {"team": "nlp"},
        "replicas": 1,
        "gpus": 3,
        "attempt": 1,
    }
    sums = {"jobs": 2, "more": False, "gpus": 4, "states": {"QUEUED": {"jobs": 2, "gpus": 4}}}
    assert answer["totals"] == sums and "nextPageToken" not in answer


def test_pages_lead_on_and_back_by_tokens(script, jobs):
    vera, found, token = script("vera"), [], ""
    while True:
        page = vera.get(LIST, {"sort": "gpus", "pageSize": 2, "pageToken": token}).json()
        found.append([job["gpus"] for job in page["jobs"]])
        if "nextPageToken" not in page:
            break
        token = page["nextPageToken"]
    assert found == [[0, 1], [2, 3], [4]]
    back = vera.get(LIST, {"sort": "gpus", "pageSize": 2, "pageToken": page["previousPageToken"]}).json()
    assert [job["gpus"] for job in back["jobs"]] == [2, 3]
    assert "previousPageToken" not in vera.get(LIST, {"sort": "gpus", "pageSize": 2}).json()


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"sort": "owner"}, "sort must be one of -created, created, name"),
        ({"state": "WAITING"}, "state must be one of active, QUEUED"),
        ({"label": "team=nlp=x"}, "label must be key=value or key, not 'team=nlp=x'"),
        ({"label": "a" * 65}, "label must be key=value or key"),
        ({"pageToken": "17"}, "pageToken must be one of an earlier answer"),
        ({"pageSize": "x"}, "pageSize must be a whole number"),
        ({"labels": "team=nlp"}, "There is no parameter 'labels'. Known are label, owner"),
    ],
)
def test_a_value_that_no_list_has_is_refused_with_the_field_and_the_cure(script, jobs, query, words):
    answer = script("vera").get(LIST, query)
    assert answer.status_code == 400 and words in answer.json()["error"]["message"]


def test_each_person_finds_the_jobs_of_their_projects_only(script, jobs):
    assert [job["displayName"] for job in script("charlie").get(LIST).json()["jobs"]] == ["foreign"]
    assert script("loner").get(LIST).json()["jobs"] == [] and script().get(LIST).status_code == 401
    assert len(script("root").get(LIST).json()["jobs"]) == 6
