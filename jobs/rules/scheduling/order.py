"""The order of the queue: class, priority, fair share of the project, age; and what people have moved by hand.

1. SPOT jobs come after all others, whatever their priority: they use what no other job wants. (Otherwise a
   preempted job would take its capacity back from the job that it made room for.)
2. Priority: the label `trainyard-priority`, high, normal or low.
3. Fair share: each project is charged what it has used lately, what it holds, and its jobs that are earlier in this
   order; all divided by its weight. The next job is always one of the project that is charged the least.
4. Age: of two jobs of one project, the earlier one.

An admin of the deployment may move jobs in the whole queue (`pin`): such jobs come before all others of their class,
SPOT or not, in the order of their pins. Their projects are charged for them, so fair share stays what it is for those
behind. An admin of a project may move jobs among those of the project with the same priority (`own_pin`): they take
each other's turns, and no job of another project is passed. What is moved gains no other right: quota, reservations
and backfill are those of every job.

The order depends on nothing else; in particular not on the order in which rows are read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from operator import attrgetter
from typing import NamedTuple

from agents.infra.texts import said
from jobs.rules.scheduling import resource_requests
from jobs.rules.scheduling.fairness import EQUAL, Share
from jobs.rules.spec.json_fields import InvalidDocument, Violation

LABEL = "trainyard-priority"
PRIORITIES = {"high": 100, "normal": 0, "low": -100}
NORMAL = PRIORITIES["normal"]
# A job that is placed, or holds GPUs, is charged as if it used them for this long.
CHARGE_S = 3_600.0
_CLASS = attrgetter("spot", "priority", "pin")
_PIN = attrgetter("pin", "job")
# Pins are counted from 1: none is false.
_OWN_PIN = attrgetter("own_pin")


class WaitingJob(NamedTuple):
    """A job that wants to be placed. An older job has a smaller id. `timeout_s` is what is left of its timeout.
    `undrawn`: a trial without parameters. A place is found for it, and it starts when they are drawn."""

    job: int
    project: int
    owner: int | None
    location: str
    request: str
    timeout_s: float
    priority: int = 0
    spot: bool = False
    attempt: int = 1
    pin: float | None = None
    own_pin: float | None = None
    undrawn: bool = False


def is_pinned(job: WaitingJob) -> bool:
    """Whether a person has set its place."""
    return job.pin is not None or job.own_pin is not None


def priority_of(labels: Mapping[str, str], highest: str = "high") -> int:
    """The priority in the labels. `highest`: the most that the project may use. Without a label, a job is normal, or
    has the highest priority of its project if that is lower."""
    word = labels.get(LABEL)
    if word is None:
        return min(NORMAL, PRIORITIES[highest])
    if word not in PRIORITIES:
        wrong = said("must be high, normal or low, not {word}.", word=repr(word))
        raise InvalidDocument((Violation(f"labels.{LABEL}", wrong),))
    return PRIORITIES[word]


def in_order(
    waiting: Iterable[WaitingJob], shares: Mapping[int, Share], held: Mapping[int, float]
) -> list[WaitingJob]:
    """The waiting jobs in the order in which capacity is offered. `held`: the GPUs that each project holds now."""
    by_age = sorted(waiting, key=attrgetter("job"))
    classes: defaultdict[tuple[bool, bool, int], list[WaitingJob]] = defaultdict(list)
    for (spot, priority, pin), each in zip(map(_CLASS, by_age), by_age, strict=True):
        classes[spot, pin is None, -priority if pin is None else 0].append(each)
    by_class = [_as_moved(classes[key]) for key in sorted(classes)]
    projects = {each.project for one in by_class for each in one}
    if len(projects) <= 1:
        return [each for one in by_class for each in one]
    weights = {project: max(shares.get(project, EQUAL).weight, 1e-9) for project in projects}
    charged = {
        project: (shares.get(project, EQUAL).used_gpu_seconds + held.get(project, 0.0) * CHARGE_S)
        / weights[project]
        for project in projects
    }
    found: list[WaitingJob] = []
    for one in by_class:
        by_charge = _by_charge(one, weights, charged)
        found += by_charge if one[0].pin is None else one
    return found


def _as_moved(by_age: list[WaitingJob]) -> list[WaitingJob]:
    """The jobs of one class as people moved them; what nobody moved stays in the order of age."""
    if by_age[0].pin is not None:
        return sorted(by_age, key=_PIN)
    if not any(map(_OWN_PIN, by_age)):
        return by_age
    turns: defaultdict[int, list[int]] = defaultdict(list)
    for turn, each in enumerate(by_age):
        turns[each.project].append(turn)
    found = list(by_age)
    for of_project in turns.values():
        moved = sorted((by_age[turn] for turn in of_project), key=_own_place)
        for turn, each in zip(of_project, moved, strict=True):
            found[turn] = each
    return found


def _own_place(job: WaitingJob) -> tuple[float, int]:
    return (inf if job.own_pin is None else job.own_pin), job.job


def _by_charge(
    by_age: Sequence[WaitingJob], weights: Mapping[int, float], charged: dict[int, float]
) -> list[WaitingJob]:
    """The jobs of one class, each ranked by what its project is charged before it."""
    charges = []
    costs: dict[str, float] = {}
    for project, request in map(attrgetter("project", "request"), by_age):
        cost = costs.get(request)
        if cost is None:
            cost = costs[request] = resource_requests.decode_request(request).weight * CHARGE_S
        charge = charged[project]
        charges.append(charge)
        charged[project] = charge + cost / weights[project]
    return [by_age[place] for place in sorted(range(len(charges)), key=charges.__getitem__)]
