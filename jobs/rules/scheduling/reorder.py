"""Moving jobs in the queue by hand: what each would be pinned to, and who is passed by that.

A move pins the moved jobs, and those ahead of them, so that they keep the places in which the person saw them. It
changes nothing else of the order (order.py): SPOT jobs stay behind all others, and a move within a project uses the
turns of that project alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from agents.infra.texts import said
from jobs.rules.scheduling.fairness import Share
from jobs.rules.scheduling.order import WaitingJob, in_order, is_pinned

# So many jobs can be pinned at once: nobody oversees more, and each is held in its place against all that come later.
MOST_PINNED = 200
NOT_PASSED = said("The jobs cannot be put before that one: it is not among those that they pass.")


class To(StrEnum):
    TOP = "top"
    UP = "up"
    DOWN = "down"
    BEFORE = "before"
    AUTOMATIC = "automatic"


class ImpossibleMove(Exception):
    """The jobs cannot be moved so. `field` names what is wrong with the move."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field, self.message = field, message


@dataclass(frozen=True, slots=True)
class Move:
    """Where the jobs go. `before`: the job that they are put before. `project`: move within that project; None: in the
    whole queue."""

    jobs: tuple[int, ...]
    to: To
    before: int | None = None
    project: int | None = None


@dataclass(frozen=True, slots=True)
class Pins:
    """What a move pins: `order` from the first place on, of which people moved `moved`; it frees `freed`."""

    order: tuple[int, ...] = ()
    moved: frozenset[int] = frozenset()
    freed: frozenset[int] = frozenset()


def pins(queue: Sequence[WaitingJob], move: Move) -> Pins:
    """What the move pins. `queue` is in its order. Raises ImpossibleMove where the move is not possible."""
    wanted = set(move.jobs)
    moved = [each for each in queue if each.job in wanted]
    if len(moved) < len(wanted) or not moved:
        raise ImpossibleMove(
            "jobs", said("A job does not wait for a place any more. Look at the queue again.")
        )
    if move.project is not None:
        _check_within(moved, move.project)
    if move.to == To.AUTOMATIC:
        return Pins(freed=frozenset(wanted))
    among = _among(queue, moved, move)
    rest = [each for each in among if each.job not in wanted]
    at = _turn(among, rest, moved, move)
    order = [*rest[:at], *moved, *rest[at:]]
    # Behind the last that is moved, or that was pinned before, the automatic order goes on.
    last = max(n for n, each in enumerate(order) if each.job in wanted or _pin(each, move) is not None)
    if last >= MOST_PINNED:
        raise ImpossibleMove(
            "to",
            said("By hand, jobs can be moved within the first {most} places only.", most=MOST_PINNED),
        )
    return Pins(tuple(each.job for each in order[: last + 1]), frozenset(wanted))


def _check_within(moved: Sequence[WaitingJob], project: int) -> None:
    """Of any move within a project, also back to the automatic order."""
    if any(each.project != project for each in moved):
        raise ImpossibleMove("jobs", said("Within a project, only its own jobs can be moved."))
    if any(each.pin is not None for each in moved):
        raise ImpossibleMove(
            "jobs", said("An admin of the deployment has moved this job in the whole queue: it stays there.")
        )


def _pin(job: WaitingJob, move: Move) -> float | None:
    return job.pin if move.project is None else job.own_pin


def _among(queue: Sequence[WaitingJob], moved: Sequence[WaitingJob], move: Move) -> list[WaitingJob]:
    """The jobs among which these can be moved."""
    if len({each.spot for each in moved}) > 1:
        raise ImpossibleMove("jobs", said("SPOT jobs come after all others: move them by themselves."))
    spot = moved[0].spot
    if move.project is None:
        return [each for each in queue if each.spot == spot]
    if len({each.priority for each in moved}) > 1:
        raise ImpossibleMove("jobs", said("Within a project, jobs of one priority can be moved together."))
    mine = (move.project, spot, moved[0].priority, None)
    return [each for each in queue if (each.project, each.spot, each.priority, each.pin) == mine]


def _turn(
    among: Sequence[WaitingJob], rest: Sequence[WaitingJob], moved: Sequence[WaitingJob], move: Move
) -> int:
    """Before how many of the rest the moved jobs come to stand: the index of the first behind them."""
    if move.to == To.TOP:
        return 0
    places = {each.job: place for place, each in enumerate(among)}
    if move.to == To.UP:
        return max(places[moved[0].job] - 1, 0)
    if move.to == To.DOWN:
        return min(places[moved[-1].job] - len(moved) + 2, len(rest))
    for place, each in enumerate(rest):
        if each.job == move.before:
            return place
    raise ImpossibleMove("before", NOT_PASSED)


def pinned(queue: Sequence[WaitingJob], of: Pins, move: Move) -> list[WaitingJob]:
    """The queue with these pins, not in order."""
    rank = {job: float(place) for place, job in enumerate(of.order, 1)}
    whole = move.project is None
    return [_repinned(each, rank, of.freed, whole) for each in queue]


def _repinned(each: WaitingJob, rank: Mapping[int, float], freed: Collection[int], whole: bool) -> WaitingJob:
    if each.job in freed:
        return each._replace(pin=None, own_pin=None)
    if each.job not in rank:
        return each
    if whole:
        return each._replace(pin=rank[each.job], own_pin=None)
    return each._replace(own_pin=rank[each.job])


def passed_by(
    queue: Sequence[WaitingJob], shares: Mapping[int, Share], held: Mapping[int, float], most: int
) -> dict[int, list[int]]:
    """For each of the first `most` jobs of the automatic order, the moved jobs that are ahead of it only because they
    were moved. `queue` is in its order."""
    moved = {each.job for each in queue if is_pinned(each)}
    if not moved:
        return {}
    free = in_order((each._replace(pin=None, own_pin=None) for each in queue), shares, held)
    automatic = {each.job: place for place, each in enumerate(free)}
    found: dict[int, list[int]] = {}
    ahead: list[int] = []
    for each in queue:
        place = automatic[each.job]
        if place < most and (passing := [job for job in ahead if automatic[job] > place]):
            found[each.job] = passing
        if each.job in moved:
            ahead.append(each.job)
    return found
