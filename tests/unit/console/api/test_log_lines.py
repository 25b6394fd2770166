"""Numbers, places and times of lines in the REST API, and who may ask."""

from __future__ import annotations

import pytest

from console.api.logs import log_lines
from jobs.logs import line_numbers
from jobs.logs.search_budget import SearchBudget
from tests.unit.console.log_rows import write
from tests.unit.console.views.example_rows import a_host, a_job

T = 1_700_000_000.5


@pytest.fixture
def job(cast, project):
    line_numbers._last.clear()
    return a_job(project, cast.bob, host=a_host())


def path(job, query):
    return f"/api/v1/jobs/{job.pk}/replicas/workerpool0-0/log/lines?{query}"


def test_a_line_has_a_number_a_place_and_times(script, job):
    run = job.runs.get()
    write(run, b"one\n", wall=T)
    write(run, b"two\nthree\n", wall=T + 1)
    known = {"run": run.pk, "stored": 14}
    vera = script("vera")
    assert vera.get(path(job, "line=3")).json() == {**known, "line": 3, "offset": 8}
    assert vera.get(path(job, f"line=99&run={run.pk}")).json() == {**known, "line": 3, "offset": 8}
    assert vera.get(path(job, "from=5")).json() == {**known, "line": 2, "offset": 5}
    told = vera.get(path(job, "from=5&to=14")).json()
    assert told == {**known, "line": 2, "offset": 5, "times": [[4, T + 1]]}


def test_a_count_that_takes_long_goes_on_with_the_next_request(script, job, monkeypatch):
    for _ in range(3):
        write(job.runs.get(), b"line\n")
    monkeypatch.setattr(line_numbers, "STEP", 5)
    monkeypatch.setattr(log_lines, "SearchBudget", lambda *asked: SearchBudget(*asked, seconds=0))
    answers = [script("vera").get(path(job, "from=15")).json() for _ in range(3)]
    assert [one.get("line", one.get("counting")) for one in answers] == [True, True, 4]


@pytest.mark.parametrize("query", ["", "line=1&from=2", "line=-1", "from=x", "from=1&to=x"])
def test_an_invalid_question_is_refused(script, job, query):
    assert script("bob").get(path(job, query)).status_code == 400


@pytest.mark.parametrize(("who", "status"), [("charlie", 404), ("loner", 404), (None, 401)])
def test_a_person_without_permission_learns_nothing(script, job, who, status):
    write(job.runs.get(), b"secret\n")
    assert script(who).get(path(job, "line=1")).status_code == status
    assert script("vera").get(path(job, "line=1&run=1-workerpool0-0-a1-r0")).status_code == 404
