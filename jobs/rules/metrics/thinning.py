"""Which points of a curve are kept when there are too many: evenly over its steps, and never without its ends, its
lowest and its highest. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

Point = tuple[int, float]


def kept(points: Sequence[Point], most: int) -> list[int]:
    """The indices of about `most` of these points, which are in order of their steps."""
    if len(points) <= most:
        return list(range(len(points)))
    numbers = [(value, index) for index, (_, value) in enumerate(points) if math.isfinite(value)]
    ends = {0, len(points) - 1, *((min(numbers)[1], max(numbers)[1]) if numbers else ())}
    first, last = points[0][0], points[-1][0]
    apart = (last - first) / max(most - 1, 1)
    found, due = [], float(first)
    for index, (step, _) in enumerate(points):
        if step >= due or index in ends:
            found.append(index)
            while due <= step and apart > 0:
                due += max(apart, (step - due) // apart * apart)
    return found
