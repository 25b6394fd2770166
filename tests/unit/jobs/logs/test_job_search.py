"""Search in the logs of all replicas: each line is found once, in the order of the job, whatever comes meanwhile."""

from __future__ import annotations

import pytest

from jobs.logs import job_search, run_search
from jobs.logs.job_search import START, search_job
from jobs.logs.search_pattern import SearchPattern
from tests.unit.console.log_rows import write
from tests.unit.console.views.example_rows import a_run
from tests.unit.jobs.conftest import spec

pytestmark = pytest.mark.django_db


@pytest.fixture
def job(add_host, submit):
    add_host()
    job = submit(spec())
    [replica] = job.replicas.all()
    host = job.runs.get().host
    for index in range(3):
        another = job.replicas.create(name=f"workerpool1-{index}", pool=1, index=index, state="RUNNING")
        for number in range(2):
            a_run(job, another, host, number=number)
    return job


def test_rows_of_tests_have_no_port_that_a_placed_run_may_have(job, settings):
    """A run that was placed has any of them, on the same host: two of one port are an IntegrityError now and then."""
    low, high = settings.TRAINYARD.ports
    ports = job.runs.order_by("pk").values_list("port", flat=True)
    assert [low <= port <= high for port in ports] == [True] + [False] * 6


def all_of(job, text, earlier=False):
    lines, place, turns = [], START, []
    while place is not None:
        page = search_job(job, SearchPattern(text), place, earlier)
        assert page.next is None or page.next > place
        assert page.searched <= page.stored and (page.next is not None or page.searched == page.stored)
        lines += [(line.run.replica.name, line.run.number, line.hit.text) for line in page.lines]
        turns.append(page.searched)
        place = page.next
    assert turns == sorted(turns)
    return lines


@pytest.mark.parametrize(
    ("read", "hits", "runs"), [(10**6, 200, 100), (300, 200, 100), (10**6, 3, 100), (10**6, 200, 2)]
)
def test_each_line_of_each_replica_is_found_once_in_order(job, monkeypatch, read, hits, runs):
    monkeypatch.setattr(SearchPattern, "step", 100)
    monkeypatch.setattr(run_search, "MAX_READ", read)
    monkeypatch.setattr(run_search, "MAX_HITS", hits)
    monkeypatch.setattr(job_search, "MAX_RUNS", runs)
    every = list(job.runs.select_related("replica").order_by("replica__pool", "replica__index", "number"))
    for run in every:
        name = f"{run.replica.name} {run.number}".encode()
        write(run, b"".join(b"%s LOSS %d\n" % (name, n) + b"something else\n" * 5 for n in range(4)))
    wanted = [
        (run.replica.name, run.number, b"%s %d LOSS %d" % (run.replica.name.encode(), run.number, n))
        for run in every
        for n in range(4)
    ]
    assert all_of(job, "loss", earlier=True) == wanted
    newest = [line for line in wanted if line[1] == 1 or line[0] == "workerpool0-0"]
    assert all_of(job, "loss") == newest and len(newest) == 16


def test_a_replica_that_starts_during_the_search_is_searched_too(job, monkeypatch):
    monkeypatch.setattr(job_search, "MAX_RUNS", 1)
    first = search_job(job, SearchPattern("x"), START, False)
    assert first.next is not None
    replica = job.replicas.get(name="workerpool1-2")
    write(a_run(job, replica, job.runs.first().host, number=2), b"x marks it\n")
    place, found = first.next, []
    while place is not None:
        page = search_job(job, SearchPattern("x"), place, False)
        found += [line.hit.text for line in page.lines]
        place = page.next
    assert found == [b"x marks it"]
