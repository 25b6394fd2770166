"""In which order waiting jobs are served: class, priority, fair share of the project, age.

1. SPOT jobs come after all others, whatever their priority: they use what nobody else wants. (Otherwise a preempted
   job would take its place back from the one that it had to make room for.)
2. Priority: the label `trainyard-priority`, high, normal or low.
3. Fair share: each project is charged what it has used lately, what it holds, and, one after the other, its jobs that
   are served before; all over its weight. The next job is always of the project that is charged the least.
4. Age: of two jobs of one project, the earlier one.

The order depends on nothing else, so it does not change with the order in which rows are read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from jobs.rules.scheduling import resource_requests
from jobs.rules.scheduling.fairness import EQUAL, Share
from jobs.rules.spec.json_fields import InvalidDocument, Violation

LABEL = "trainyard-priority"
PRIORITIES = {"high": 100, "normal": 0, "low": -100}
NORMAL = PRIORITIES["normal"]
# A job that is served, or holds GPUs, is charged this much of them at once.
CHARGE_S = 3_600.0


class WaitingJob(NamedTuple):
    """A job that wants a place. Its id grows with its age; `timeout_s` is what is left of it."""

    job: int
    project: int
    owner: int | None
    location: str
    request: str
    timeout_s: float
    priority: int = 0
    spot: bool = False
    attempt: int = 1


def priority_of(labels: Mapping[str, str], highest: str = "high") -> int:
    """`highest`: what the job's project may ask for. A job that says nothing is normal, or that if it is less."""
    word = labels.get(LABEL)
    if word is None:
        return min(NORMAL, PRIORITIES[highest])
    if word not in PRIORITIES:
        known = "high, normal or low"
        raise InvalidDocument((Violation(f"labels.{LABEL}", f"must be {known}, not {word!r}."),))
    return PRIORITIES[word]


def in_order(
    waiting: Iterable[WaitingJob], shares: Mapping[int, Share], held: Mapping[int, float]
) -> list[WaitingJob]:
    """`held`: what the jobs of a project hold now, in GPUs."""
    by_age = sorted(waiting, key=attrgetter("job"))
    classes: defaultdict[tuple[bool, int], list[WaitingJob]] = defaultdict(list)
    for key, each in zip(map(attrgetter("spot", "priority"), by_age), by_age, strict=True):
        classes[key].append(each)
    by_class = [classes[key] for key in sorted(classes, key=lambda key: (key[0], -key[1]))]
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
        found += _by_charge(one, weights, charged)
    return found


def _by_charge(
    by_age: Sequence[WaitingJob], weights: Mapping[int, float], charged: dict[int, float]
) -> list[WaitingJob]:
    """Those of one class, each at what its project is charged with before it."""
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
