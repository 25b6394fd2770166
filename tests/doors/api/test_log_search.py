"""Looking for a text in a log by script, and who may."""

from __future__ import annotations

import pytest

from tests.doors.pages.rows import a_host, a_job, a_run
from tests.doors.rows_of_logs import write


@pytest.fixture
def job(cast, project):
    return a_job(project, cast.bob, host=a_host())


def path(job, query):
    return f"/api/v1/jobs/{job.pk}/replicas/workerpool0-0/log/search?{query}"


def test_lines_come_as_plain_text_with_their_places(script, job):
    run = job.runs.get()
    write(run, b"step 1\n\x1b[31mKeyError\x1b[0m: '<b>'\x07\nkeyerror again\n")
    told = script("vera").get(path(job, "q=KeyError")).json()
    assert told == {
        "run": run.pk,
        "searchedTo": 48,
        "stored": 48,
        "hits": [
            {"offset": 12, "line": 7, "text": "KeyError: '<b>'"},
            {"offset": 33, "line": 33, "text": "keyerror again"},
        ],
    }
    # Another run of it has a log of its own; a place that is only held is none.
    a_run(job, run.replica, run.host, number=1, held=True)
    assert script("vera").get(path(job, "q=again&from=20")).json()["hits"][0]["offset"] == 42
    a_run(job, run.replica, run.host, number=2)
    assert script("vera").get(path(job, "q=again")).json()["hits"] == []
    assert script("vera").get(path(job, f"q=again&run={run.pk}")).json()["hits"]


@pytest.mark.parametrize(
    ("query", "field"),
    [("", "q"), ("q=", "q"), (f"q={'x' * 201}", "q"), ("q=a%0Ab", "q"), ("q=a&from=-1", "from")],
)
def test_what_cannot_be_looked_for_is_said(script, job, query, field):
    answer = script("bob").get(path(job, query))
    assert answer.status_code == 400
    assert answer.json()["error"]["details"][0]["fieldViolations"][0]["field"] == field


@pytest.mark.parametrize(("who", "status"), [("charlie", 404), ("loner", 404), (None, 401)])
def test_strangers_find_nothing(script, job, who, status):
    write(job.runs.get(), b"secret\n")
    assert script(who).get(path(job, "q=secret")).status_code == status
    assert script("vera").get(path(job, "q=a&run=1-workerpool0-0-a1-r0")).status_code == 404
