"""Log search in the REST API, and who may use it."""

from __future__ import annotations

import json
import random
from contextlib import ExitStack

import pytest

from console.api.logs import log_search
from console.api.logs.merged_logs import Place, write_token
from jobs.logs import reader, run_search
from jobs.logs.search_budget import MOST, SearchBudget
from jobs.logs.search_pattern import SearchPattern
from tests.unit.console.log_rows import write
from tests.unit.console.views.example_rows import a_host, a_job, a_run


@pytest.fixture
def job(cast, project):
    return a_job(project, cast.bob, host=a_host())


def path(job, query):
    return f"/api/v1/jobs/{job.pk}/replicas/workerpool0-0/log/search?{query}"


def test_matching_lines_are_returned_as_plain_text_with_their_positions(script, job):
    run = job.runs.get()
    write(run, b"step 1\n\x1b[31mKeyError\x1b[0m: '<b>'\x07\nkeyerror again\n")
    told = script("vera").get(path(job, "q=KeyError")).json()
    assert told == {
        "run": run.pk,
        "searchedTo": 48,
        "stored": 48,
        "hits": [
            {"offset": 12, "line": 7, "text": "KeyError: '<b>'", "match": "KeyError"},
            {"offset": 33, "line": 33, "text": "keyerror again", "match": "keyerror"},
        ],
    }
    # Another run of the replica has a log of its own. A held run has none.
    a_run(job, run.replica, run.host, number=1, held=True)
    assert script("vera").get(path(job, "q=again&from=20")).json()["hits"][0]["offset"] == 42
    a_run(job, run.replica, run.host, number=2)
    assert script("vera").get(path(job, "q=again")).json()["hits"] == []
    assert script("vera").get(path(job, f"q=again&run={run.pk}")).json()["hits"]


@pytest.mark.parametrize(
    ("query", "field"),
    [("", "q"), ("q=", "q"), (f"q={'x' * 201}", "q"), ("q=a%0Ab", "q"), ("q=a&from=-1", "from")],
)
def test_an_invalid_search_is_refused(script, job, query, field):
    answer = script("bob").get(path(job, query))
    assert answer.status_code == 400
    assert answer.json()["error"]["details"][0]["fieldViolations"][0]["field"] == field


def test_a_regular_expression_is_searched_in_one_log_and_in_all(script, job):
    write(job.runs.get(), b"step 1 loss 0.5\nstep 20 loss 0.4\nSTEP x\n")
    query = "regex=1&q=^step%20%5Cd%2B%20loss"
    hits = script("vera").get(path(job, query)).json()["hits"]
    assert [(hit["line"], hit["match"]) for hit in hits] == [(0, "step 1 loss"), (16, "step 20 loss")]
    everywhere = script("vera").get(f"/api/v1/jobs/{job.pk}/log/search?{query}").json()
    assert [hit["match"] for hit in everywhere["hits"]] == ["step 1 loss", "step 20 loss"]
    assert script("vera").get(path(job, "q=%5Cd%2B")).json()["hits"] == []
    refused = script("vera").get(path(job, "regex=1&q=(a"))
    assert refused.status_code == 400 and "missing )" in refused.json()["error"]["message"]
    assert script("vera").get(path(job, "regex=yes&q=a")).status_code == 400


@pytest.mark.parametrize(("who", "status"), [("charlie", 404), ("loner", 404), (None, 401)])
def test_a_person_without_permission_finds_nothing(script, job, who, status):
    write(job.runs.get(), b"secret\n")
    assert script(who).get(path(job, "q=secret")).status_code == status
    assert script("vera").get(path(job, "q=a&run=1-workerpool0-0-a1-r0")).status_code == 404


def test_all_replicas_are_searched_at_once(script, cast, project, monkeypatch):
    job = a_job(project, cast.bob, host=a_host(name="gpu-x"), replicas=3)
    runs = list(job.runs.select_related("replica").order_by("replica__pool", "replica__index"))
    for run in runs:
        write(run, f"hello\nFEHLER in Straße {run.replica.name}\n".encode())
    newer = a_run(job, runs[0].replica, runs[0].host, number=1)
    path = f"/api/v1/jobs/{job.pk}/log/search"
    told = script("vera").get(f"{path}?q=STRA%E1%BA%9EE").json()
    assert told["searched"] == told["stored"] and "nextPageToken" not in told
    assert [hit["replica"] for hit in told["hits"]] == ["workerpool1-0", "workerpool1-1"]
    monkeypatch.setattr(run_search, "MAX_HITS", 1)
    hits, token = [], ""
    for _ in range(9):
        told = script("vera").get(f"{path}?q=stra%C3%9Fe&runs=all&pageToken={token}").json()
        hits += told["hits"]
        if not (token := told.get("nextPageToken", "")):
            break
    assert [hit["run"] for hit in hits] == [run.pk for run in runs] and newer.pk not in str(hits)
    assert hits[0] | {"time": 0} == {
        "replica": "workerpool0-0",
        "run": runs[0].pk,
        "attempt": 1,
        "number": 0,
        "host": "gpu-x",
        "time": 0,
        "offset": 16,
        "line": 6,
        "text": "FEHLER in Straße workerpool0-0",
        "match": "Straße",
    }
    for wrong in ("q=", "q=a&pageToken=x", "q=a&runs=some"):
        assert script("vera").get(f"{path}?{wrong}").status_code == 400
    assert script("charlie").get(f"{path}?q=a").status_code == 404


def test_chosen_replicas_are_searched_alone(script, cast, project):
    job = a_job(project, cast.bob, host=a_host(name="gpu-x"), replicas=3)
    for run in job.runs.select_related("replica"):
        write(run, b"hello\n")
    path = f"/api/v1/jobs/{job.pk}/log/search?q=hello&replicas="

    def hits(names):
        told = script("vera").get(path + names).json()
        assert told["searched"] == told["stored"] == 6 * len(told["hits"])
        return [hit["replica"] for hit in told["hits"]]

    assert hits("workerpool1-1,workerpool0-0") == ["workerpool0-0", "workerpool1-1"]
    assert len(hits("")) == 3
    assert script("vera").get(f"{path}workerpool0-0,workerpool9-9").status_code == 404


def test_lines_of_all_replicas_come_by_their_times(script, cast, project, monkeypatch):
    job = a_job(project, cast.bob, host=a_host(name="gpu-x"), replicas=3)
    runs = list(job.runs.select_related("replica").order_by("replica__pool", "replica__index"))
    for turn in range(3):
        for number, run in enumerate(runs):
            write(run, f"hello {turn}\n".encode(), wall=1_700_000_000 + 100 * turn - number)
    path = f"/api/v1/jobs/{job.pk}/log/search?q=hello&order="
    wanted = [(run.replica.name, f"hello {turn}") for turn in range(3) for run in reversed(runs)]

    def all_of(order):
        hits, token = [], ""
        for _ in range(99):
            told = script("vera").get(f"{path}{order}&pageToken={token}").json()
            hits += [(hit["replica"], hit["text"]) for hit in told["hits"]]
            if not (token := told.get("nextPageToken", "")):
                return told["order"], hits
        raise AssertionError(hits)

    assert all_of("time") == ("time", wanted)
    monkeypatch.setattr(run_search, "MAX_HITS", 2)
    assert all_of("time") == ("time", wanted)
    # Of more logs than a token can hold: replica by replica, and the answer says so.
    monkeypatch.setattr(log_search, "MAX_IN_TIME", 2)
    assert all_of("time") == ("replica", sorted(wanted)) == all_of("replica")
    monkeypatch.setattr(log_search, "MAX_IN_TIME", 3)
    for wrong in ("size", "time&pageToken=x", "replica&pageToken=eJw"):
        assert script("vera").get(f"{path}{wrong}").status_code == 400


def test_a_search_goes_on_in_the_order_in_which_it_began(script, cast, project, monkeypatch):
    """Runs that begin meanwhile may be too many for a new search by time."""
    job = a_job(project, cast.bob, host=a_host(name="gpu-x"), replicas=3)
    for number, run in enumerate(job.runs.order_by("pk")):
        write(run, f"hello {number}\n".encode(), wall=1_700_000_000 - number)
    monkeypatch.setattr(run_search, "MAX_HITS", 2)
    path = f"/api/v1/jobs/{job.pk}/log/search?q=hello&order=time&pageToken="

    def told_of(token, most):
        monkeypatch.setattr(log_search, "MAX_IN_TIME", most)
        return script("vera").get(f"{path}{token}").json()

    for order, at_first, later in (("time", 3, 2), ("replica", 2, 3)):
        first = told_of("", at_first)
        rest = told_of(first["nextPageToken"], later)
        assert (first["order"], rest["order"]) == (order, order)
        assert sorted(hit["text"] for hit in first["hits"] + rest["hits"]) == [
            "hello 0",
            "hello 1",
            "hello 2",
        ]
    token = told_of("", 3)["nextPageToken"]
    monkeypatch.setattr(log_search, "MAX_GROWN", 2)
    assert script("vera").get(f"{path}{token}").status_code == 400


def test_a_token_by_time_fits_into_an_address():
    """Proxies take a line of 8 KB. The text that is looked for has up to 1,800 of them."""
    chance = random.Random(7)
    places = {
        f"{1_700_000_000_000_000_000}-workerpool1-{index}-a{chance.randrange(9)}-r{chance.randrange(9)}": Place(
            1_700_000_000_000_000 + chance.randrange(10**12),
            chance.randrange(10**9),
            str(chance.randrange(10**9)),
        )
        for index in range(log_search.MAX_IN_TIME)
    }
    assert len(write_token("time", places)) < 6000


def test_a_line_with_an_impossible_time_comes_without_a_time(script, job):
    write(job.runs.get(), b"KeyError\n", wall=1e300)
    [hit] = script("vera").get(f"/api/v1/jobs/{job.pk}/log/search?q=keyerror").json()["hits"]
    assert hit["text"] == "KeyError" and "time" not in hit


def test_two_searches_of_a_person_at_once_do_not_both_read_on(script, cast, job, monkeypatch):
    """The first one ends at its next look at the budget, and its answer says how far it came."""
    run = job.runs.get()
    write(run, b"a line of the log\n" * 1000)
    monkeypatch.setattr(SearchPattern, "step", 2000)
    monkeypatch.setattr(run_search, "MAX_LINE", 100)
    read, asked = reader.read, []

    def read_while_another_begins(row, start, limit):
        asked.append(start)
        if len(asked) == 2:
            SearchBudget(cast.vera.pk).__enter__()
        return read(row, start, limit)

    monkeypatch.setattr(reader, "read", read_while_another_begins)
    told = script("vera").get(path(job, "q=nowhere")).json()
    assert len(asked) == 2 and 1900 < told["searchedTo"] <= 4000 < told["stored"]
    told = script("vera").get(path(job, f"q=nowhere&from={told['searchedTo']}")).json()
    assert told["searchedTo"] == told["stored"], "the other search is over: this one reads to the end"


def look_at(client, job, what):
    if what == "entries":
        body = {
            "resourceNames": ["projects/default"],
            "filter": f'resource.type="ml_job" AND resource.labels.job_id="{job.pk}"',
        }
        return client.post("/v2/entries:list", json.dumps(body), content_type="application/json")
    return client.get(f"/api/v1/jobs/{job.pk}/{what}")


@pytest.mark.parametrize(
    "what",
    [
        "replicas/workerpool0-0/log/search?q=nowhere",
        "log/search?q=nowhere",
        "log/earlier?until=1900000000",
        "log/later?since=0",
        "replicas/workerpool0-0/log/lines?line=3",
        "replicas/workerpool0-0/log/lines?from=3",
        "entries",
    ],
)
def test_whatever_a_person_looks_for_in_logs_ends_the_oldest_of_too_many(script, cast, job, what):
    """Else a person with many jobs would have as many of them at once as there are threads for requests."""
    write(job.runs.get(), b"a line of the log\n")
    with ExitStack() as stack:
        oldest, *rest = [stack.enter_context(SearchBudget(cast.vera.pk, number)) for number in range(MOST)]
        other = stack.enter_context(SearchBudget(cast.bob.pk))
        assert not oldest.spent()
        assert look_at(script("vera"), job, what).status_code == 200
        assert oldest.spent()
        assert not any(each.spent() for each in (*rest, other))
