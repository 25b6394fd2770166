"""The cells of a contour: each has a shade, the best the first one."""

from __future__ import annotations

from console.presenters.studies import contour
from jobs.rules.tuning.search.expected_grid import ExpectedGrid
from jobs.rules.tuning.study import Goal


def shades(goal, *values):
    land = ExpectedGrid(("a", "b"), (1, 2), (values[:2], values[2:]))
    ordered = sorted(values, reverse=goal is Goal.MAXIMIZE)
    return [(each.cells.count("M"), each.low, each.high) for each in contour._shades(land, ordered, goal)]


def test_fewer_cells_than_shades_still_differ():
    assert shades(Goal.MINIMIZE, 4.0, 1.0, 3.0, 2.0) == [
        (1, "1", "1"),
        (1, "1", "2"),
        (1, "2", "3"),
        (1, "3", "4"),
    ]
    assert [count for count, _low, _high in shades(Goal.MAXIMIZE, 4.0, 1.0, 3.0, 2.0)] == [1, 1, 1, 1]
