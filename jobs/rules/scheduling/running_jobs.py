"""Running jobs as the scheduler sees them: what each holds on which host, and when it ends at the latest."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple


class HostClaim(NamedTuple):
    """What one replica holds of a host."""

    host: int
    cpus: float
    memory_mb: int
    kind: str
    gpus: int


class RunningJob(NamedTuple):
    """A job with placements. Times are seconds since the epoch; `ends` is when its timeout is over."""

    job: int
    ends: float
    claims: tuple[HostClaim, ...]
    spot: bool = False
    since: float = 0.0
    stopping: bool = False
    project: int = 0
    owner: int | None = None

    @property
    def gpus(self) -> int:
        return sum(claim.gpus for claim in self.claims)

    @property
    def by_kind(self) -> dict[str, int]:
        held: dict[str, int] = {}
        for claim in self.claims:
            if claim.gpus:
                held[claim.kind] = held.get(claim.kind, 0) + claim.gpus
        return held


by_end = attrgetter("ends", "job")


class RunningJobs:
    """All running jobs, by their end. The jobs of one host or one project are found without a search."""

    def __init__(self, running: Iterable[RunningJob]) -> None:
        self.all = sorted(running, key=by_end)

    def on(self, hosts: Collection[int]) -> Sequence[RunningJob]:
        """The jobs on these hosts; all jobs, where that costs less than to pick them."""
        if 2 * len(hosts) > len(self._on):
            return self.all
        found = {one.job: one for host in hosts for one in self._on.get(host, ())}
        return sorted(found.values(), key=by_end)

    def of(self, project: int) -> Sequence[RunningJob]:
        return self._of.get(project, ())

    def add(self, one: RunningJob) -> None:
        for each in self._lists(one):
            insort(each, one, key=by_end)

    def remove(self, one: RunningJob) -> None:
        for each in self._lists(one):
            del each[bisect_left(each, by_end(one), key=by_end)]

    def _lists(self, one: RunningJob) -> list[list[RunningJob]]:
        return [self.all, self._of[one.project], *(self._on[host] for host in {c.host for c in one.claims})]

    @cached_property
    def _on(self) -> defaultdict[int, list[RunningJob]]:
        found: defaultdict[int, list[RunningJob]] = defaultdict(list)
        for one in self.all:
            for host in {claim.host for claim in one.claims}:
                found[host].append(one)
        return found

    @cached_property
    def _of(self) -> defaultdict[int, list[RunningJob]]:
        found: defaultdict[int, list[RunningJob]] = defaultdict(list)
        for one in self.all:
            found[one.project].append(one)
        return found
