"""Search a text in the logs of several runs, in the order in which lines were printed, a bounded part for each request.

Each log is searched a part at a time, always the one whose search has come least far by the clocks of the hosts. So
what is found before that moment is all that was printed before it. A search that is continued begins at its positions:
a log from which a line was found, but not yet told, is searched again from where that part began.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agents.infra import untrusted
from jobs.logs import run_search
from jobs.logs.job_search import FoundLine
from jobs.logs.run_search import Hit
from jobs.logs.search_budget import SearchBudget
from jobs.logs.search_pattern import LogPattern
from jobs.models import Run

# A part of a log, longer than a line that is searched whole. Of each, so many bytes may be searched twice.
PART = 256 * 1024
PART_HITS = 50
# The part with which each log begins. Nothing is told before all have begun, so it is small.
FIRST = 16 * 1024


@dataclass(frozen=True, slots=True)
class TimedPosition:
    """How far the search of a log has come. What is still to be told was printed `at` this second or later; it stands
    from `offset` on, and behind `told`. Without `at`, nothing is."""

    at: float | None
    offset: int
    told: int


@dataclass(frozen=True, slots=True)
class TimedPage:
    """Without `positions`, everything is searched."""

    lines: tuple[FoundLine, ...]
    positions: Mapping[str, TimedPosition]
    searched: int
    stored: int


def search_in_time(
    runs: Sequence[Run],
    pattern: LogPattern,
    positions: Mapping[str, TimedPosition],
    budget: SearchBudget | None = None,
) -> TimedPage:
    logs = [_Log(run, pattern, positions.get(run.pk)) for run in runs]
    heap = [(log.at, rank) for rank, log in enumerate(logs) if not log.over]
    heapq.heapify(heap)
    lines: list[FoundLine] = []
    read = 0
    while heap and len(lines) < run_search.MAX_HITS:
        rank = heap[0][1]
        log = logs[rank]
        if log.hits:
            lines.append(FoundLine(log.run, log.take()))
        elif read >= run_search.MAX_READ or (read and budget is not None and budget.spent()):
            break
        else:
            read += log.search(budget)
        heapq.heappop(heap)
        if not log.over:
            heapq.heappush(heap, (log.at, rank))
    left = {log.run.pk: log.position for log in logs if log.begun} if heap else {}
    return TimedPage(tuple(lines), left, sum(log.offset for log in logs), sum(run.log_stored for run in runs))


@dataclass(slots=True)
class _Log:
    """One of the logs. `low`: no line that is still to be told was printed before. `hits`: found, and not told yet."""

    run: Run
    pattern: LogPattern
    known: TimedPosition | None
    low: float = 0.0
    begin: int = 0
    offset: int = 0
    told: int = -1
    hits: deque[Hit] = field(default_factory=deque)
    # When the bytes before `offset` were printed.
    behind: float = 0.0
    begun: bool = False
    searched: bool = False

    def __post_init__(self) -> None:
        if self.known is None:
            return
        self.begun = True
        self.begin = self.offset = min(self.known.offset, self.run.log_stored)
        self.low, self.told, self.searched = self.known.at or 0.0, self.known.told, self.known.at is None

    @property
    def over(self) -> bool:
        return self.searched and not self.hits

    @property
    def at(self) -> float:
        return max(self.low, _second(self.hits[0].wall)) if self.hits else self.low

    @property
    def position(self) -> TimedPosition:
        return TimedPosition(
            None if self.over else self.at, self.begin if self.hits else self.offset, self.told
        )

    def take(self) -> Hit:
        self.low = self.at
        hit = self.hits.popleft()
        self.told = hit.offset
        if not self.hits:
            self.low = max(self.low, self.behind)
        return hit

    def search(self, budget: SearchBudget | None) -> int:
        """Search the next part. Returns how many bytes were read, at least one."""
        part = PART if self.begun else min(PART, FIRST)
        self.begun, self.begin = True, self.offset
        found = run_search.search_run(
            self.run, self.pattern, self.offset, self.run.log_stored, part, PART_HITS, budget
        )
        self.hits.extend(hit for hit in found.hits if hit.offset > self.told)
        self.offset = self.run.log_stored if found.over else found.end
        self.searched, self.behind = found.over, _second(found.wall)
        if not self.hits:
            self.low = max(self.low, self.behind)
        return max(found.read, 1)


def _second(wall: float | None) -> float:
    """A time that a host has told. It may be none that there can be."""
    at = untrusted.timestamp(wall)
    return at.timestamp() if at else 0.0
