"""Which of a host's free GPUs a replica gets: those nearest to each other, so that near GPUs also stay together in
what is left.

Few GPUs are free on a host, so all choices are compared while there are not too many. Beyond that, a choice is gathered
around each GPU by adding the nearest ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from math import comb

from jobs.rules.scheduling.views import Topology

_MAX_CHOICES = 500
# How near GPUs of one NUMA node are if no link between them is known; any real link is nearer.
SAME_NODE = 5
_WEIGHTS = range(1, 1_000_000)


def read(reported: object, uuids: Mapping[int, str]) -> Topology | None:
    """What a host reported: `{"links": [[i, j, weight], ...], "numa": {"<index>": node}}`. Odd values are left out.

    `uuids`: the host's GPUs by their index. None: nothing is known.
    """
    return _read(
        reported if isinstance(reported, str) else json.dumps(reported), tuple(sorted(uuids.items()))
    )


@lru_cache(maxsize=2_048)
def _read(reported: str, pairs: tuple[tuple[int, str], ...]) -> Topology | None:
    """Cached: every pass asks for it, and the wiring of a host never changes."""
    document, uuids = json.loads(reported), dict(pairs)
    if not isinstance(document, dict):
        return None
    nodes = {uuid: node for index, uuid in pairs if (node := _numa(document, index)) is not None}
    near = {
        _pair(one, other): SAME_NODE for one, other in combinations(nodes, 2) if nodes[one] == nodes[other]
    }
    links = document.get("links")
    for link in links if isinstance(links, list) else ():
        match link:
            case [int(one), int(other), int(weight)] if one != other and weight in _WEIGHTS:
                if one in uuids and other in uuids:
                    near[_pair(uuids[one], uuids[other])] = weight
    return Topology(near) if near else None


def _numa(document: Mapping[str, object], index: int) -> object:
    nodes = document.get("numa")
    return nodes.get(str(index)) if isinstance(nodes, dict) else None


def _pair(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)


def choose_gpus(free: Sequence[str], count: int, topology: Topology | None) -> tuple[str, ...]:
    """Choose `count` of the free GPUs, in their order. Without a topology the first ones: neighbours often have
    neighbouring numbers."""
    if topology is None or not topology.near or not 0 < count < len(free):
        return tuple(free[:count])
    if comb(len(free), count) <= _MAX_CHOICES:
        choices = list(combinations(range(len(free)), count))
    else:
        choices = [_around(start, free, count, topology) for start in range(len(free))]
    best = max(choices, key=lambda choice: _worth(choice, free, topology))
    return tuple(free[place] for place in best)


def _worth(
    choice: tuple[int, ...], free: Sequence[str], topology: Topology
) -> tuple[int, int, tuple[int, ...]]:
    """How near the chosen GPUs are to each other; then how few near pairs are cut; then lower numbers first."""
    inside = sum(topology.between(free[one], free[other]) for one, other in combinations(choice, 2))
    rest = set(range(len(free))).difference(choice)
    cut = sum(topology.between(free[one], free[other]) for one in choice for other in rest)
    return inside, -cut, tuple(-place for place in choice)


def _around(start: int, free: Sequence[str], count: int, topology: Topology) -> tuple[int, ...]:
    chosen = [start]
    left = [place for place in range(len(free)) if place != start]
    while len(chosen) < count:
        nearest = max(
            left, key=lambda place: (sum(topology.between(free[place], free[c]) for c in chosen), -place)
        )
        chosen.append(nearest)
        left.remove(nearest)
    return tuple(sorted(chosen))
