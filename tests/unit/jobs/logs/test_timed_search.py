"""Search by time in many logs: what was printed first comes first, and each line once, however small the parts are."""

from __future__ import annotations

import random

import pytest

from jobs.logs import job_search, run_search, timed_search
from jobs.logs.search_pattern import SearchPattern
from tests.unit.console.log_rows import write
from tests.unit.console.views.example_rows import a_run
from tests.unit.jobs.conftest import spec

pytestmark = pytest.mark.django_db
T = 1_700_000_000


@pytest.fixture
def job(add_host, submit):
    add_host()
    job = submit(spec())
    [run] = job.runs.select_related("host")
    for index in range(5):
        another = job.replicas.create(name=f"workerpool1-{index}", pool=1, index=index, state="RUNNING")
        a_run(job, another, run.host)
    return job


def found(job, pages=1000):
    runs = list(job_search.runs_of(job, earlier=False))
    lines, positions = [], {}
    for _ in range(pages):
        page = timed_search.search_in_time(runs, SearchPattern("loss"), positions)
        lines += [(line.hit.wall, line.run.replica.name, line.hit.text) for line in page.lines]
        if not page.positions:
            assert page.searched == page.stored
            return lines
        assert page.positions != positions, "each request comes further"
        positions = page.positions
    raise AssertionError("The search does not end.")


@pytest.mark.parametrize(
    ("part", "read", "hits"), [(10**6, 10**6, 200), (400, 800, 200), (400, 800, 3), (400, 90, 1)]
)
def test_lines_of_all_logs_come_in_the_order_of_their_times(job, monkeypatch, part, read, hits):
    monkeypatch.setattr(SearchPattern, "step", 100)
    monkeypatch.setattr(timed_search, "PART", part)
    monkeypatch.setattr(timed_search, "PART_HITS", 2)
    monkeypatch.setattr(run_search, "MAX_READ", read)
    monkeypatch.setattr(run_search, "MAX_HITS", hits)
    chance = random.Random(7)
    wanted = []
    for run in job.runs.select_related("replica"):
        at = T + chance.random() * 100
        for number in range(12):
            at += chance.random() * 20
            text = f"{run.replica.name} loss {number}"
            write(run, f"{text}\n{'something else ' * chance.randrange(20)}\n".encode(), wall=at)
            wanted.append((at, run.replica.name, text.encode()))
    assert found(job) == sorted(wanted)


def test_the_first_of_all_is_told_first_though_another_log_has_thousands(job):
    """Who said it first? Not the replica that is searched first."""
    runs = {run.replica.name: run for run in job.runs.select_related("replica")}
    for number in range(20):
        write(runs["workerpool0-0"], b"loss of rank 0\n" * 100, wall=T + 10 + number)
    write(runs["workerpool1-3"], b"a loss, the first\n", wall=T + 1)
    page = timed_search.search_in_time(
        list(job_search.runs_of(job, earlier=False)), SearchPattern("loss"), {}
    )
    assert page.lines[0].hit.text == b"a loss, the first" and len(page.lines) == run_search.MAX_HITS
    assert len(found(job)) == 2001


def test_many_logs_are_begun_before_the_first_request_ends(job, monkeypatch):
    """No line is told before each log was begun: whole parts of many logs are many requests without a line."""
    monkeypatch.setattr(run_search, "MAX_READ", 1024 * 1024)
    for number, run in enumerate(job.runs.order_by("pk")):
        write(run, b"loss\n" + b"something else\n" * 1500, wall=T + number)
        write(run, b"something else\n" * 30_000, wall=T + 100)
    page = timed_search.search_in_time(
        list(job_search.runs_of(job, earlier=False)), SearchPattern("loss"), {}
    )
    assert [line.hit.wall for line in page.lines][:3] == [T, T + 1, T + 2] and page.positions
    assert len(found(job)) == 6


def test_a_line_that_is_longer_than_the_first_part_is_searched_whole(job):
    run = job.runs.order_by("pk").first()
    write(run, b"x" * (timed_search.FIRST - 2) + b"loss" + b"x" * timed_search.FIRST + b"\n", wall=T)
    write(run, b"another loss\n", wall=T + 1)
    assert [wall for wall, _, _ in found(job)] == [T, T + 1]


def test_a_clock_that_was_set_back_or_is_impossible_loses_no_line(job):
    run, other = list(job.runs.order_by("pk"))[:2]
    for wall in (T + 50, T + 10, 1e300, None, T + 60):
        write(run, f"loss at {wall}\n".encode(), wall=wall)
    write(other, b"loss between\n", wall=T + 20)
    assert [text for _, _, text in found(job)].count(b"loss between") == 1 and len(found(job)) == 6
