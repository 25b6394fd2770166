"""The tab Scatter of a study: each of a few parameters and metrics against each other, as dots, and as a table how much
they go together."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from django.urls import reverse
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from agents.infra.shared_answers import SharedAnswers
from agents.infra.text import visible
from console.presenters.studies.asked import Choice, chosen_metric, kept, metric_choices
from console.presenters.studies.axes import Axis, Inside, axes_of
from console.presenters.studies.heights import dots
from console.presenters.studies.parallel import good_ones
from console.presenters.studies.plots import spread
from console.presenters.studies.read_trials import KEPT, read_trials, version_of
from console.presenters.studies.trial_rows import PARAMETER, TrialRow, by_result
from jobs.models import TuningJob
from jobs.rules.tuning.importance import importances
from jobs.rules.tuning.study import StudySpec
from jobs.tuning import snapshot

PAGE = "study-scatter"
# So many parameters, the most important ones, and so many dots of all cells.
MOST_PARAMETERS, MOST_DOTS = 5, 8_000
# The matrices of so many pages are kept.
STUDIES = 20
# Fewer trials say nothing of how two axes go together.
LEAST = 5
Places = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Cell:
    """One axis over another one. `together`: the correlation of their ranks; None: too few trials have both."""

    rest: str
    good: str
    words: str
    together: float | None

    @property
    def text(self) -> str:
        return "–" if self.together is None else f"{self.together:+.2f}"


@dataclass(frozen=True, slots=True)
class Row:
    """The cells of one axis against those before it."""

    axis: Axis
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class ScatterMatrix:
    """`axes`: those of the columns. `drawn` of `count` trials; `more`: parameters that are not drawn."""

    metric: str
    metrics: Sequence[Choice]
    inside: Inside
    axes: tuple[Axis, ...]
    rows: tuple[Row, ...]
    drawn: int
    count: int
    more: int
    words: str


_kept: SharedAnswers[Hashable, ScatterMatrix] = SharedAnswers(KEPT, STUDIES)


def scatter_matrix(tuning_job: TuningJob, query: Mapping[str, str]) -> ScatterMatrix:
    """Drawn once for all who look at the same."""
    trials, asked = read_trials(tuning_job), kept(query)
    made_of = (tuning_job.pk, tuning_job.updated_at, get_language(), version_of(trials), tuple(asked.items()))
    return _kept.get(made_of, lambda: _drawn_matrix(tuning_job, trials, asked))


def _drawn_matrix(
    tuning_job: TuningJob, every: Sequence[TrialRow], query: Mapping[str, str]
) -> ScatterMatrix:
    study = snapshot.study_of(tuning_job)
    metric = chosen_metric(study, query)
    axes = axes_of(study, every, query)
    of_all = by_result(metric, every)
    ranked = by_result(metric, axes.inside(every)) if axes.ranges else of_all
    chosen = _chosen(study, axes.shown, of_all)
    here = reverse(PAGE, args=[tuning_job.pk])
    rows: tuple[Row, ...] = ()
    drawn: list[TrialRow] = []
    if len(ranked) > 1 and len(chosen) > 1:
        drawn, good = _drawn(ranked, MOST_DOTS // (len(chosen) * (len(chosen) - 1) // 2))
        rows = tuple(_rows(chosen, ranked, drawn, good))
    return ScatterMatrix(
        metric=visible(metric.name),
        metrics=metric_choices(study, query, here),
        inside=axes.inside_of(every, query, here),
        axes=tuple(chosen[:-1]),
        rows=rows,
        drawn=len(drawn),
        count=len(ranked),
        more=sum(each.key.startswith(PARAMETER) for each in axes.shown)
        - sum(each.key.startswith(PARAMETER) for each in chosen)
        + axes.more,
        words=_words(rows),
    )


def _chosen(study: StudySpec, axes: Sequence[Axis], ranked: Sequence[TrialRow]) -> list[Axis]:
    """The most important parameters in the order of the study, then the metrics."""
    parameters = [each for each in axes if each.key.startswith(PARAMETER)]
    found = importances(study.parameters, [each.parameters for each in ranked])
    by_weight = sorted(parameters, key=lambda each: -found.get(each.parameter.name, 0.0))
    shown = {each.key for each in by_weight[:MOST_PARAMETERS]}
    return [each for each in axes if each.key in shown or not each.key.startswith(PARAMETER)]


def _drawn(ranked: Sequence[TrialRow], most: int) -> tuple[list[TrialRow], int]:
    """The trials that are drawn, and how many of them, at the beginning, are the best fifth."""
    good = ranked[: good_ones(ranked)]
    best = [good[index] for index in spread(len(good), max(most // 2, 1))]
    others = ranked[len(good) :]
    return [*best, *(others[index] for index in spread(len(others), max(most - len(best), 1)))], len(best)


def _rows(
    axes: Sequence[Axis], ranked: Sequence[TrialRow], drawn: Sequence[TrialRow], good: int
) -> Iterable[Row]:
    places = [axis.places(drawn) for axis in axes]
    all_places = [_Ranked.of(axis.places(ranked)) for axis in axes]
    for row, axis in enumerate(axes[1:], start=1):
        yield Row(
            axis,
            tuple(
                _cell(
                    axes[column], axis, places[column], places[row], good, all_places[column], all_places[row]
                )
                for column in range(row)
            ),
        )


def _cell(
    across: Axis, up: Axis, xs: Places, ys: Places, good: int, all_xs: _Ranked, all_ys: _Ranked
) -> Cell:
    together = all_xs.correlation(all_ys)
    words = _("{up} over {across}; rank correlation {number}.").format(
        up=up.name, across=across.name, number="–" if together is None else f"{together:+.2f}"
    )
    return Cell(_dots(xs[good:], ys[good:]), _dots(xs[:good], ys[:good]), words, together)


def _dots(xs: Places, ys: Places) -> str:
    both = [(x, y) for x, y in zip(xs, ys, strict=True) if x is not None and y is not None]
    return dots([x for x, _y in both], [y for _x, y in both])


@dataclass(frozen=True, slots=True)
class _Ranked:
    """Places, and their ranks if none is missing: these are the same beside every other axis without a gap."""

    places: Places
    ranks: Sequence[float] | None

    @classmethod
    def of(cls, places: Places) -> _Ranked:
        known = [each for each in places if each is not None]
        return cls(places, _ranks(known) if len(known) == len(places) else None)

    def correlation(self, other: _Ranked) -> float | None:
        if self.ranks is None or other.ranks is None:
            return rank_correlation(self.places, other.places)
        return _correlation(self.ranks, other.ranks) if len(self.ranks) >= LEAST else None


def rank_correlation(xs: Places, ys: Places) -> float | None:
    """Spearman's, from -1 to 1; equal values share their rank."""
    both = [(x, y) for x, y in zip(xs, ys, strict=True) if x is not None and y is not None]
    if len(both) < LEAST:
        return None
    return _correlation(*(_ranks([pair[at] for pair in both]) for at in (0, 1)))


def _correlation(one: Sequence[float], other: Sequence[float]) -> float | None:
    middle = (len(one) - 1) / 2
    of_both = sum((x - middle) * (y - middle) for x, y in zip(one, other, strict=True))
    of_each = [sum((rank - middle) ** 2 for rank in ranks) for ranks in (one, other)]
    return float(of_both / (of_each[0] * of_each[1]) ** 0.5) if all(of_each) else None


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=values.__getitem__)
    starts = [at for at in range(len(order)) if not at or values[order[at]] != values[order[at - 1]]]
    found = [0.0] * len(values)
    for start, end in pairwise([*starts, len(order)]):
        for at in order[start:end]:
            found[at] = (start + end - 1) / 2
    return found


def _words(rows: Iterable[Row]) -> str:
    """Which metric follows which parameter the most."""
    known = [
        (abs(cell.together), cell)
        for row in rows
        if not row.axis.key.startswith(PARAMETER)
        for cell in row.cells
        if cell.together is not None
    ]
    if not known:
        return ""
    return _("The most go together: {words}").format(words=max(known, key=lambda one: one[0])[1].words)
