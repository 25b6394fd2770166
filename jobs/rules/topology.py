"""Which of a host's free GPUs a replica gets: those nearest to each other, and so that near ones stay together.

Few GPUs are free on a host, so every choice is looked at while there are not too many; beyond that the nearest are
gathered one by one around each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb

from jobs.rules.hosts import Topology

_MOST_CHOICES = 500


def choose(free: Sequence[str], count: int, topology: Topology | None) -> tuple[str, ...]:
    """So many of these, in their order. Without a topology the first ones: neighbours have neighbouring numbers."""
    if topology is None or not topology.near or not 0 < count < len(free):
        return tuple(free[:count])
    if comb(len(free), count) <= _MOST_CHOICES:
        choices = list(combinations(range(len(free)), count))
    else:
        choices = [_around(start, free, count, topology) for start in range(len(free))]
    best = max(choices, key=lambda choice: _worth(choice, free, topology))
    return tuple(free[place] for place in best)


def _worth(
    choice: tuple[int, ...], free: Sequence[str], topology: Topology
) -> tuple[int, int, tuple[int, ...]]:
    """How near they are to each other; then how little they are missed by the rest; then the first ones."""
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
