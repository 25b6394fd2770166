"""Looking for a text in the logs of all replicas of a job at once, replica by replica, a bounded piece at a time.

Who has an answer with a `next` asks again from there, whatever was started or printed meanwhile: places are ordered as
the job's own replicas and runs are, and nothing that comes later is before them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from jobs.logs import run_search
from jobs.logs.run_search import Hit
from jobs.logs.search_pattern import SearchPattern
from jobs.models import Job, Run

# Each costs a few statements, however short its log is.
MAX_RUNS = 100

# Of a run: pool, index, attempt, number.
Key = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """In the log of one run of the job, from which to go on."""

    run: Key
    offset: int


START = Place((0, 0, 0, 0), 0)


@dataclass(frozen=True, slots=True)
class Line:
    run: Run
    hit: Hit


@dataclass(frozen=True, slots=True)
class Page:
    """`searched` of the `stored` bytes of all chosen runs are looked at; without a `next`, all of them."""

    lines: tuple[Line, ...]
    next: Place | None
    searched: int
    stored: int


def search_job(job: Job, needle: SearchPattern, begin: Place, earlier: bool) -> Page:
    """In the newest run of each replica, or in the earlier ones as well."""
    runs = list(_chosen(job, earlier))
    stored = sum(run.log_stored for run in runs)
    searched = sum(run.log_stored for run in runs if key(run) < begin.run)
    left = [run for run in runs if key(run) >= begin.run]
    lines: list[Line] = []
    read = 0
    for number, run in enumerate(left):
        place = begin.offset if key(run) == begin.run else 0
        room = run_search.MAX_READ - read, run_search.MAX_HITS - len(lines)
        if number >= MAX_RUNS or min(room) <= 0:
            return Page(tuple(lines), Place(key(run), place), searched + place, stored)
        found = run_search.search_run(run, needle, place, run.log_stored, *room)
        lines += [Line(run, hit) for hit in found.hits]
        read += found.read
        if not found.over:
            return Page(tuple(lines), Place(key(run), found.end), searched + found.end, stored)
        searched += run.log_stored
    return Page(tuple(lines), None, stored, stored)


def _chosen(job: Job, earlier: bool) -> Iterable[Run]:
    """In the order of places. A place that is only held for a replica that moves is no run of it yet."""
    order = ("replica__pool", "replica__index", "attempt", "number")
    rows = Run.objects.filter(job=job, held=False).select_related("replica", "host").order_by(*order)
    light = rows.only("attempt", "number", "log_stored", "replica", "host__name")
    return light if earlier else {run.replica_id: run for run in light}.values()


def key(run: Run) -> Key:
    return run.replica.pool, run.replica.index, run.attempt, run.number
