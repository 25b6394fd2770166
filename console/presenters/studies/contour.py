"""The contour of a study: what the model expects over two parameters, as cells of a few shades.

It is drawn when somebody asks for it, and kept by the process until there are a tenth more results: the model costs
about a twentieth of a second, and numpy, which it needs, costs a process 22 MB.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from django.utils.module_loading import import_string
from django.utils.translation import gettext as _

from agents.infra.text import visible
from console.presenters.metrics.charts import HEIGHT, WIDTH
from console.presenters.metrics.reported_metrics import number
from console.presenters.studies.asked import ACROSS, UP, chosen_metric, others
from console.presenters.studies.heights import dot
from console.presenters.studies.read_trials import read_trials
from console.presenters.studies.trial_rows import TrialRow, by_result, parameter_text
from jobs.models import TuningJob
from jobs.rules.tuning.importance import LEAST_TRIALS, importances
from jobs.rules.tuning.search.expected_grid import ExpectedGrid
from jobs.rules.tuning.search.unit_place import unit_place
from jobs.rules.tuning.space import Parameter, flat
from jobs.rules.tuning.study import Goal, Metric, StudySpec
from jobs.rules.tuning.trials import cost
from jobs.tuning import snapshot

SHADES = 7
# So many rows and columns of the grid are in its table.
TABLE = 5
MOST_DOTS = 300


@dataclass(frozen=True, slots=True)
class Shade:
    """The cells of one shade, and the values that it stands for."""

    cells: str
    low: str
    high: str


@dataclass(frozen=True, slots=True)
class ContourTable:
    """`across`: heads of its columns; `rows`: (head, cells)."""

    across: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class Contour:
    """`names`: of all parameters that may be chosen, as they are and as they are shown. `shades`: the best first.
    `asked`: what else the address asks for, which its form repeats."""

    metric: str
    across: str
    up: str
    names: tuple[tuple[str, str], ...]
    ends_across: tuple[str, str]
    ends_up: tuple[str, str]
    shades: tuple[Shade, ...]
    dots: str
    best: str
    table: ContourTable
    count: int
    words: str
    asked: Sequence[tuple[str, str]] = ()


def is_possible(study: StudySpec, ranked: Sequence[TrialRow]) -> bool:
    return len(ranked) >= LEAST_TRIALS and len(_of_the_best(study, ranked)) > 1


def grown(results: int) -> int:
    """A number that changes when there are about a tenth more results."""
    return round(math.log(max(results, 1)) / math.log(1.1))


def contour(tuning_job: TuningJob, query: Mapping[str, str]) -> Contour | None:
    """None where there is too little to learn from."""
    study = snapshot.study_of(tuning_job)
    metric = chosen_metric(study, query)
    ranked = by_result(metric, read_trials(tuning_job))
    if not is_possible(study, ranked):
        return None
    choices = _choices(study, ranked)
    across, up = _chosen(choices, query)
    grid = _learnt(tuning_job.pk, metric, grown(len(ranked)), ranked[0].number, across.name, up.name)
    drawn = _drawn(metric, ranked, choices, across, up, grid)
    return replace(drawn, asked=others(query, ACROSS, UP))


def _choices(study: StudySpec, ranked: Sequence[TrialRow]) -> list[Parameter]:
    """The parameters that the best trial has, the most important first."""
    found = importances(study.parameters, [each.parameters for each in ranked])
    return sorted(_of_the_best(study, ranked), key=lambda each: -found.get(each.name, 0.0))


def _of_the_best(study: StudySpec, ranked: Sequence[TrialRow]) -> list[Parameter]:
    known = {each.name: each for each in flat(study.parameters) if (each.count or 2) > 1}
    best = ranked[0].parameters
    return [each for name, each in known.items() if name in best and unit_place(each, best[name]) is not None]


def _chosen(choices: Sequence[Parameter], query: Mapping[str, str]) -> tuple[Parameter, Parameter]:
    """What the address names, or else the two most important ones."""
    by_name = {each.name: each for each in choices}
    across = by_name.get(query.get(ACROSS, ""))
    up = by_name.get(query.get(UP, ""))
    across = across or next(each for each in choices if each != up)
    if up is None or up == across:
        up = next(each for each in choices if each != across)
    return across, up


@lru_cache(maxsize=32)
def _learnt(pk: int, metric: Metric, results: int, best: int, across: str, up: str) -> ExpectedGrid:
    """`results` and `best` say how far the study has come: a model is learnt now and then, and of each new best one."""
    tuning_job = TuningJob.objects.get(pk=pk)
    study = snapshot.study_of(tuning_job)
    ranked = by_result(metric, read_trials(tuning_job))
    known = {each.name: each for each in flat(study.parameters)}
    # By name: it imports numpy, and most web processes never draw a contour.
    landscape = import_string("jobs.rules.tuning.search.landscape.landscape")
    points = [(each.parameters, each.values[metric.name]) for each in ranked]
    found: ExpectedGrid = landscape(study.parameters, metric, points, known[across], known[up])
    return found


def _drawn(
    metric: Metric,
    ranked: Sequence[TrialRow],
    choices: Sequence[Parameter],
    across: Parameter,
    up: Parameter,
    land: ExpectedGrid,
) -> Contour:
    flat_values = sorted((value for row in land.values for value in row), key=lambda each: cost(metric, each))
    rows, columns = len(land.up), len(land.across)
    best_row, best_column = next(
        (at, row.index(flat_values[0])) for at, row in enumerate(land.values) if flat_values[0] in row
    )
    texts = (
        [parameter_text(each, across.kind) for each in land.across],
        [parameter_text(each, up.kind) for each in land.up],
    )
    words = _(
        "The model expects the best {metric}, {value}, where {across} is {one} and {up} is {other}. The other "
        "parameters are as in trial {number}, the best one."
    ).format(
        metric=visible(metric.name),
        value=number(flat_values[0]),
        across=visible(across.name),
        one=texts[0][best_column],
        up=visible(up.name),
        other=texts[1][best_row],
        number=ranked[0].number,
    )
    return Contour(
        metric=visible(metric.name),
        across=across.name,
        up=up.name,
        names=tuple((each.name, visible(each.name)) for each in choices),
        ends_across=(texts[0][0], texts[0][-1]),
        ends_up=(texts[1][0], texts[1][-1]),
        shades=tuple(_shades(land, flat_values, metric.goal)),
        dots=_dots(ranked[1:MOST_DOTS], across, up, columns, rows),
        best=_dots(ranked[:1], across, up, columns, rows),
        table=_table(land, texts),
        count=len(ranked),
        words=words,
    )


def _shades(land: ExpectedGrid, ordered: Sequence[float], goal: Goal) -> Iterable[Shade]:
    """Each shade has as many cells as the others. `ordered`: all values, the best first."""
    sign = 1 if goal is Goal.MINIMIZE else -1
    # Fewer cells than shades leave some shades without one.
    ends = [ordered[max((at + 1) * len(ordered) // SHADES, 1) - 1] for at in range(SHADES)]
    cells: list[list[str]] = [[] for _shade in range(SHADES)]
    width, height = WIDTH / len(land.across), HEIGHT / len(land.up)
    for row, values in enumerate(land.values):
        for column, value in enumerate(values):
            shade = next(at for at, end in enumerate(ends) if sign * value <= sign * end)
            x, y = column * width, HEIGHT - (row + 1) * height
            cells[shade].append(f"M{x:.4g} {y:.4g}h{width:.4g}v{height:.4g}h-{width:.4g}z")
    start = ordered[0]
    for own, end in zip(cells, ends, strict=True):
        if own:
            low, high = sorted((start, end))
            yield Shade("".join(own), number(low), number(high))
        start = end


def _dots(trials: Iterable[TrialRow], across: Parameter, up: Parameter, columns: int, rows: int) -> str:
    """The trials. The lowest and the highest value stand in the middle of the outermost cells."""
    found = []
    for each in trials:
        own = each.parameters
        if across.name in own and up.name in own:
            x, y = unit_place(across, own[across.name]), unit_place(up, own[up.name])
            if x is not None and y is not None:
                found.append(
                    dot(
                        round(WIDTH * (x * (columns - 1) + 0.5) / columns),
                        round(HEIGHT - HEIGHT * (y * (rows - 1) + 0.5) / rows),
                    )
                )
    return " ".join(found)


def _table(land: ExpectedGrid, texts: tuple[Sequence[str], Sequence[str]]) -> ContourTable:
    columns, rows = (_some(len(each)) for each in texts)
    return ContourTable(
        across=tuple(texts[0][at] for at in columns),
        rows=tuple(
            (texts[1][row], tuple(number(land.values[row][column]) for column in columns))
            for row in reversed(rows)
        ),
    )


def _some(count: int) -> list[int]:
    """A few places, the first and the last among them."""
    if count <= TABLE:
        return list(range(count))
    return [round(at * (count - 1) / (TABLE - 1)) for at in range(TABLE)]
