"""Two to five studies beside each other: the best result so far of each, in one plot with its table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from agents.infra.text import visible
from console.presenters.badges import JOB, Badge
from console.presenters.metrics.charts import HEIGHT, WIDTH
from console.presenters.metrics.reported_metrics import number
from console.presenters.studies.asked import OF_METRIC, Choice
from console.presenters.studies.plots import WIDE, goal_words
from console.presenters.studies.read_trials import read_trials
from console.presenters.studies.trial_rows import TrialRow
from jobs.models import TuningJob
from jobs.rules.tuning.price import hours_text
from jobs.rules.tuning.study import Metric
from jobs.rules.tuning.trials import FINISHED, TrialState, cost
from jobs.tuning import price, snapshot

FEWEST, MOST = 2, 5
# After how many results the table says what each study had found.
AFTER = (5, 10, 20, 50, 100, 200, 500, 1_000)
# (how many results, the value, the trial), for each result that was better than those before.
Steps = Sequence[tuple[int, float, int]]


@dataclass(frozen=True, slots=True)
class ComparedStudy:
    """`number`: from 1 on. `best`: the best value with its trial. `after`: the best value after so many results.
    Without results the texts are empty."""

    number: int
    id: int
    name: str
    badge: Badge
    goal: str
    results: int
    ended: int
    path: str
    best: str
    best_trial: int | None
    hours: str
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StudyComparison:
    """`after`: heads of the columns of the table. `low`, `high`: the ends of the plot; empty: there is none."""

    metric: str
    metrics: tuple[Choice, ...]
    studies: tuple[ComparedStudy, ...]
    after: tuple[int, ...]
    most: int
    low: str
    high: str
    logarithmic: bool
    words: str


def compare(rows: Sequence[TuningJob], query: Mapping[str, str]) -> StudyComparison:
    studies = [snapshot.study_of(row) for row in rows]
    names = list(dict.fromkeys(metric.name for study in studies for metric in study.objectives))
    asked = query.get(OF_METRIC, "")
    chosen = (
        asked
        if asked in names
        else _shared(names, [[one.name for one in each.objectives] for each in studies])
    )
    metrics = [next((one for one in study.metrics if one.name == chosen), None) for study in studies]
    trials = [read_trials(row) for row in rows]
    found = [_results(metric, each) for metric, each in zip(metrics, trials, strict=True)]
    steps = [_steps(metric, each) for metric, each in zip(metrics, found, strict=True)]
    values = [value for each in steps for _count, value, _trial in each]
    low, high = min(values, default=0.0), max(values, default=0.0)
    most = max((len(each) for each in found), default=0)
    logarithmic = low > 0 and high / low >= WIDE
    after = tuple(each for each in AFTER if each <= most)
    compared = tuple(
        _compared(place, row, metric, every, results, own, after)
        for place, (row, metric, every, results, own) in enumerate(
            zip(rows, metrics, trials, found, steps, strict=True), 1
        )
    )
    frame = _Frame(low, high, most, logarithmic)
    drawn = tuple(
        _with_path(each, frame.path(own, len(results)))
        for each, own, results in zip(compared, steps, found, strict=True)
    )
    return StudyComparison(
        metric=visible(chosen),
        metrics=tuple(_choice(rows, name, name == chosen) for name in names) if len(names) > 1 else (),
        studies=drawn,
        after=after,
        most=most,
        low=number(low) if values else "",
        high=number(high) if values else "",
        logarithmic=logarithmic,
        words=_words(visible(chosen), drawn),
    )


def address(ids: Iterable[int]) -> str:
    return f"{reverse('compare-studies')}?{urlencode({'study': list(ids)}, doseq=True)}"


def _choice(rows: Sequence[TuningJob], name: str, current: bool) -> Choice:
    url = f"{address(row.pk for row in rows)}&{urlencode({OF_METRIC: name})}"
    return Choice(visible(name), url, current)


def _shared(names: Sequence[str], of_each: Sequence[Sequence[str]]) -> str:
    """The first metric that all of them have, or else the first one."""
    return next((name for name in names if all(name in each for each in of_each)), names[0])


def _results(metric: Metric | None, trials: Iterable[TrialRow]) -> list[tuple[int, float]]:
    """(the trial, its value), in the order of the numbers of the trials."""
    if metric is None:
        return []
    return [
        (each.number, each.values[metric.name])
        for each in trials
        if each.state == TrialState.SUCCEEDED and math.isfinite(each.values.get(metric.name, math.nan))
    ]


def _steps(metric: Metric | None, results: Sequence[tuple[int, float]]) -> Steps:
    found: list[tuple[int, float, int]] = []
    for count, (trial, value) in enumerate(results, 1):
        assert metric is not None  # it has results
        if not found or cost(metric, value) < cost(metric, found[-1][1]):
            found.append((count, value, trial))
    return found


def _compared(
    place: int,
    row: TuningJob,
    metric: Metric | None,
    trials: Sequence[TrialRow],
    results: Sequence[tuple[int, float]],
    steps: Steps,
    after: Sequence[int],
) -> ComparedStudy:
    hours = price.hours_in_all(row, timezone.now())
    return ComparedStudy(
        number=place,
        id=row.pk,
        name=row.display_name,
        badge=JOB[row.state],
        goal=goal_words(metric) if metric else "",
        results=len(results),
        ended=sum(each.state in FINISHED for each in trials),
        path="",
        best=number(steps[-1][1]) if steps else "",
        best_trial=steps[-1][2] if steps else None,
        hours=hours_text(hours) if hours else "",
        after=tuple(_after(steps, len(results), count) for count in after),
    )


def _after(steps: Steps, results: int, count: int) -> str:
    """Empty where there are fewer results."""
    known = [value for at, value, _trial in steps if at <= count]
    return number(known[-1]) if known and results >= count else ""


@dataclass(frozen=True, slots=True)
class _Frame:
    low: float
    high: float
    most: int
    logarithmic: bool

    def path(self, steps: Steps, results: int) -> str:
        """It goes on to the last result, whether that was better or not."""
        if not steps:
            return ""
        (first, value, _trial), *others = steps
        rest = "".join(f"H{self._x(at)}V{self._y(value)}" for at, value, _trial in others)
        return f"M{self._x(first)} {self._y(value)}{rest}H{max(self._x(results), self._x(first) + 2)}"

    def _x(self, count: int) -> int:
        return round(4 + (WIDTH - 8) * (count - 1) / max(self.most - 1, 1))

    def _y(self, value: float) -> int:
        low, high, own = (
            (math.log(each) if self.logarithmic else each) for each in (self.low, self.high, value)
        )
        # Halves first: the distance of two huge numbers is no number.
        share = (own / 2 - low / 2) / (high / 2 - low / 2) if high > low else 0.5
        return round(HEIGHT - 4 - (HEIGHT - 8) * share)


def _with_path(study: ComparedStudy, path: str) -> ComparedStudy:
    return replace(study, path=path)


def _words(metric: str, studies: Iterable[ComparedStudy]) -> str:
    known = [
        _("{name} has found {value} in {count} results").format(
            name=visible(each.name), value=each.best, count=each.results
        )
        for each in studies
        if each.best
    ]
    return (
        _("The best {metric} so far: {studies}.").format(metric=metric, studies="; ".join(known))
        if known
        else ""
    )
