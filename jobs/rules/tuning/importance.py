"""How much each parameter matters for reaching the best trials: PED-ANOVA (Watanabe, Bansal and Hutter, 2023).

For each parameter it compares how the values of the best trials are spread with how those of all trials are. A
parameter whose best values lie where all values lie does not matter. It says nothing about the rest of the space, and
nothing about parameters that matter only together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from jobs.rules.tuning.search.unit_place import unit_places
from jobs.rules.tuning.space import Parameter, Value, flat

BEST_PART = 0.1
# Of fewer trials, and of fewer of the best ones, nothing is said.
LEAST_TRIALS, LEAST_BEST = 10, 2
# Numbers are counted in so many cells of their scale.
CELLS = 50


def best_count(trials: int) -> int:
    return max(math.ceil(trials * BEST_PART), LEAST_BEST)


def importances(parameters: Sequence[Parameter], ranked: Sequence[Mapping[str, Value]]) -> dict[str, float]:
    """The share of each parameter, together 1. `ranked`: the points of the trials with a result, the best first.

    A parameter below a condition is compared among the trials that have it, and counts for their part of all trials.
    """
    if len(ranked) < LEAST_TRIALS:
        return {}
    found = {each.name: _divergence(each, ranked) for each in flat(parameters)}
    total = sum(found.values())
    return {name: value / total for name, value in found.items()} if total > 0 else {}


def _divergence(parameter: Parameter, ranked: Sequence[Mapping[str, Value]]) -> float:
    """Pearson's divergence of the values of the best trials from those of all."""
    cells = min(parameter.count or CELLS, CELLS)
    best = best_count(len(ranked))
    places = unit_places(parameter, (point.get(parameter.name) for point in ranked))
    known = [(rank, place) for rank, place in enumerate(places) if place is not None]
    top = [place for rank, place in known if rank < best]
    if cells < 2 or len(top) < LEAST_BEST:
        return 0.0
    every = _density([place for _rank, place in known], cells, bool(parameter.values))
    among_best = _density(top, cells, bool(parameter.values))
    divergence = sum(own * (one / own - 1.0) ** 2 for one, own in zip(among_best, every, strict=True))
    return divergence * len(known) / len(ranked)


def _density(places: Sequence[float], cells: int, listed: bool) -> list[float]:
    """The probability of each cell: a kernel at each place, and one more that is even, for what was not tried."""
    counts = [0] * cells
    for place in places:
        counts[round(place * (cells - 1))] += 1
    if listed:
        return [(count + 1.0 / cells) / (len(places) + 1.0) for count in counts]
    # Scott's rule, in cells.
    mean = sum(places) / len(places)
    deviation = math.sqrt(sum((each - mean) ** 2 for each in places) / len(places))
    width = max(1.06 * deviation * len(places) ** -0.2 * (cells - 1), 0.5)
    bell = [math.exp(-0.5 * (away / width) ** 2) for away in range(cells)]
    total = [1.0 / cells] * cells
    for at, count in enumerate(counts):
        if count:
            kernel = [bell[abs(at - cell)] for cell in range(cells)]
            share = count / sum(kernel)
            total = [one + share * other for one, other in zip(total, kernel, strict=True)]
    return [each / (len(places) + 1.0) for each in total]
