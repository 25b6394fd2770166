"""Search a text in the logs of all replicas of a job, replica by replica, a bounded part for each request.

A page with a `next` is continued from there, whatever was started or printed meanwhile: positions are ordered like the
replicas and runs of the job, and nothing that comes later lies before them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from jobs.logs import run_search
from jobs.logs.run_search import Hit
from jobs.logs.search_budget import SearchBudget
from jobs.logs.search_pattern import LogPattern
from jobs.models import Job, Run

# Each run costs a few statements, however short its log is.
MAX_RUNS = 100

# The order of a run in its job: pool, index, attempt, number.
Key = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True, order=True)
class SearchPosition:
    """A position in the log of one run of the job, from which a search continues."""

    run: Key
    offset: int


START = SearchPosition((0, 0, 0, 0), 0)


@dataclass(frozen=True, slots=True)
class FoundLine:
    run: Run
    hit: Hit


@dataclass(frozen=True, slots=True)
class Page:
    """The hits so far: `searched` of the `stored` bytes of all chosen runs were searched. Without a `next`: all."""

    lines: tuple[FoundLine, ...]
    next: SearchPosition | None
    searched: int
    stored: int


def search_job(
    job: Job,
    pattern: LogPattern,
    begin: SearchPosition,
    earlier: bool,
    budget: SearchBudget | None = None,
    names: Collection[str] = (),
) -> Page:
    """Search the newest run of each replica, or with `earlier` all its runs. With `names`, of these replicas."""
    runs = list(runs_of(job, earlier, names))
    stored = sum(run.log_stored for run in runs)
    searched = sum(run.log_stored for run in runs if key(run) < begin.run)
    left = [run for run in runs if key(run) >= begin.run]
    lines: list[FoundLine] = []
    read = 0
    for number, run in enumerate(left):
        offset = begin.offset if key(run) == begin.run else 0
        left_over = run_search.MAX_READ - read, run_search.MAX_HITS - len(lines)
        late = number > 0 and budget is not None and budget.spent()
        if number >= MAX_RUNS or min(left_over) <= 0 or late:
            return Page(tuple(lines), SearchPosition(key(run), offset), searched + offset, stored)
        found = run_search.search_run(run, pattern, offset, run.log_stored, *left_over, budget)
        lines += [FoundLine(run, hit) for hit in found.hits]
        read += found.read
        if not found.over:
            return Page(tuple(lines), SearchPosition(key(run), found.end), searched + found.end, stored)
        searched += run.log_stored
    return Page(tuple(lines), None, stored, stored)


def runs_of(job: Job, earlier: bool, names: Collection[str] = ()) -> Iterable[Run]:
    """The runs to search, in order; with `names`, those of these replicas.

    A held run only reserves a place for a replica that moves: it has no log yet.
    """
    order = ("replica__pool", "replica__index", "attempt", "number")
    rows = Run.objects.filter(job=job, held=False).select_related("replica", "host").order_by(*order)
    wanted = rows.filter(replica__name__in=names) if names else rows
    light = wanted.only(
        "job",
        "attempt",
        "number",
        "log_stored",
        "log_complete_at",
        "started_at",
        "created_at",
        "replica",
        "host__name",
    )
    return light if earlier else {run.replica_id: run for run in light}.values()


def key(run: Run) -> Key:
    return run.replica.pool, run.replica.index, run.attempt, run.number
