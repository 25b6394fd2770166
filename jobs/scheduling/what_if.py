"""What a move in the queue would change: the places of jobs, and when they would start. Nothing is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from jobs.rules.scheduling import reorder
from jobs.rules.scheduling.order import WaitingJob, in_order
from jobs.rules.scheduling.reorder import Move
from jobs.rules.scheduling.simulation import starts
from jobs.rules.scheduling.time_text import whole_minute
from jobs.scheduling.expected_starts import MOST
from jobs.scheduling.queue_view import QueueView, recent_queue_view
from jobs.scheduling.reorder import pins_of, stamp

# A person waits for the answer, and other pages of the process wait with them: less than a worker may take.
MAX_WORK = 60_000


@dataclass(frozen=True, slots=True)
class Change:
    """What the move would change for one job. Places are those in the whole queue, from 1; a start that is None is not
    known. Starts stand on the limits of all jobs."""

    job: int
    place: int
    new_place: int
    start: datetime | None
    new_start: datetime | None

    @property
    def sooner(self) -> bool:
        """Whether it starts earlier than without the move; where the starts are equal or unknown, it has a better
        place."""
        if self.start is not None and self.new_start is not None and self.start != self.new_start:
            return self.new_start < self.start
        return self.new_place < self.place


@dataclass(frozen=True, slots=True)
class WhatIf:
    """`moved`: the jobs that the person moves. `sooner` and `later`: the others that start at another time or, as far
    as starts are not known, have another place. `held`: how many jobs keep their places by the move. `stamp`: of what
    is seen here, for `reorder.move`."""

    stamp: str
    moved: tuple[Change, ...]
    sooner: tuple[Change, ...]
    later: tuple[Change, ...]
    held: int


def what_if(move: Move, now: datetime) -> WhatIf:
    """Raises Refused when the move is not possible."""
    seen = recent_queue_view(now)
    pins = pins_of(seen.waiting, move)
    repinned = reorder.pinned(seen.waiting, pins, move)
    after = in_order(repinned, seen.cluster.shares, seen.cluster.held)
    places, new_places = _places(seen.waiting), _places(after)
    before, then = _starts(seen, seen.waiting, now), _starts(seen, after, now)
    changes = [
        Change(job, place, new_places[job], _moment(before.get(job)), _moment(then.get(job)))
        for job, place in places.items()
    ]
    moved = tuple(each for each in changes if each.job in move.jobs)
    others = [each for each in changes if each.job not in move.jobs and _differs(each)]
    return WhatIf(
        stamp(pins),
        moved,
        tuple(each for each in others if each.sooner),
        tuple(each for each in others if not each.sooner),
        len(set(pins.order) - pins.moved),
    )


def _differs(change: Change) -> bool:
    """A job whose start is known and stays is not concerned, whatever its place is."""
    if change.start is not None and change.new_start is not None:
        return change.start != change.new_start
    return change.place != change.new_place or change.start != change.new_start


def _places(order: list[WaitingJob]) -> dict[int, int]:
    return {each.job: place for place, each in enumerate(order, 1)}


def _starts(seen: QueueView, order: list[WaitingJob], now: datetime) -> Mapping[int, float]:
    return starts(seen.cluster, order[:MOST], seen.ledger, now.timestamp(), max_work=MAX_WORK)


def _moment(at: float | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(whole_minute(at), UTC)
