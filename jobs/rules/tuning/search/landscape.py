"""What the model expects over two parameters, for a drawing: a grid of the metric's values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from jobs.rules.tuning.search.columns import Columns
from jobs.rules.tuning.search.expected_grid import ExpectedGrid
from jobs.rules.tuning.search.gaussian_process import learn
from jobs.rules.tuning.search.scales import from_unit, value_of
from jobs.rules.tuning.search.warping import warp_of
from jobs.rules.tuning.space import Parameter, Value
from jobs.rules.tuning.study import Metric
from jobs.rules.tuning.trials import cost

CELLS = 24
# The model learns from so many of the best trials, and from so many others: a page is waited for.
BEST, OTHERS = 30, 30


def landscape(
    parameters: Sequence[Parameter],
    metric: Metric,
    ranked: Sequence[tuple[Mapping[str, Value], float]],
    across: Parameter,
    up: Parameter,
) -> ExpectedGrid:
    """`ranked`: points and the metric's values, the best first. The other parameters are as in the best of them."""
    columns = Columns(parameters)
    others = ranked[BEST:]
    step = max(len(others) // OTHERS, 1)
    chosen = [*ranked[:BEST], *others[::step][:OTHERS]]
    costs = np.array([cost(metric, value) for _point, value in chosen])
    warp = warp_of(costs)
    x = columns.encode(columns.codes([point for point, _value in chosen]))
    [process] = learn(x, warp.apply(costs), columns.groups, len(ranked), samples=1)
    kept, wide, high = dict(ranked[0][0]), _values(across), _values(up)
    points = [{**kept, across.name: one, up.name: other} for other in high for one in wide]
    means = process.mean(columns.encode(columns.codes(points))).tolist()
    values = [cost(metric, warp.invert(each)) for each in means]
    rows = (tuple(values[start : start + len(wide)]) for start in range(0, len(values), len(wide)))
    return ExpectedGrid(wide, high, tuple(rows))


def _values(parameter: Parameter) -> tuple[Value, ...]:
    """All values of a short list, or values that are evenly spread on the scale, each once."""
    codes = from_unit(parameter, np.linspace(0.0, 1.0, min(parameter.count or CELLS, CELLS)))
    return tuple(dict.fromkeys(value_of(parameter, code) for code in codes.tolist()))
