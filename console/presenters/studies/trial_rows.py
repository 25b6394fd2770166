"""The trials of a study as the rows of its table: sorted, by pages, and as CSV."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import NamedTuple
from urllib.parse import urlencode

from django.utils import timezone
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from agents.infra.sentences import shown
from agents.infra.text import visible
from console.presenters import csv_cells
from console.presenters.badges import TRIAL, Badge
from console.presenters.jobs.trial_links import PAGE
from console.presenters.metrics.reported_metrics import number
from console.presenters.sort_links import SortLink, next_order
from jobs.models import Trial, TuningJob
from jobs.rules.tuning.arguments import text_of
from jobs.rules.tuning.price import hours_text
from jobs.rules.tuning.space import Kind, Value, flat
from jobs.rules.tuning.study import DEFAULT_ALGORITHM, FIRST_TRIALS, Metric, StudySpec
from jobs.rules.tuning.trials import Ending, TrialState, cost
from jobs.tuning import price, silent_trials

# The columns of the table besides those of the parameters and metrics; these begin with a letter and a dot.
NUMBER, STATE, DURATION, HOURS, EXPECTED_VALUE = "number", "state", "duration", "hours", "expected"
PARAMETER, METRIC = "p.", "m."
# These columns come last, and only where a trial of the page has something there.
LAST = (HOURS, EXPECTED_VALUE)
NOTHING_ELSE: Mapping[int, float] = {}
# What a model has said of a trial before it ran: a value, its range of one deviation, its chance to be the best.
WHY = ("value", "low", "high", "chance")
EXPECTED = gettext_noop("{value} ({low} to {high}), {chance} % to be the best")


# Of a trial of which the search expected nothing.
NOTHING: Mapping[str, float] = {}


class TrialRow(NamedTuple):
    """A tuple, which is made in a fraction of the time: a page makes a thousand of them.

    `job`: its id, or None once it is deleted. `values`: its final measurement. `why`: what the search expected.

    `verdicts`: after how many seconds each rule would have stopped it; None while that is not known.
    """

    number: int
    state: str
    job: int | None
    parameters: Mapping[str, Value]
    values: Mapping[str, float]
    step: int | None
    infeasible: str
    stopped_early: str
    started_at: datetime | None
    ended_at: datetime | None
    why: Mapping[str, float] = NOTHING
    verdicts: Mapping[str, float] | None = None
    ending: str = Ending.OWN
    silent: str = ""

    @property
    def badge(self) -> Badge:
        return TRIAL[self.state]

    @property
    def note(self) -> str:
        """Why it has no result, was stopped early, or may come to no result."""
        return shown(self.infeasible or self.stopped_early or self.silent)

    @property
    def seconds(self) -> float:
        if self.started_at is None or self.ended_at is None:
            return math.inf
        return (self.ended_at - self.started_at).total_seconds()

    def expected(self, text: str) -> str:
        """What the model expected of it, with one deviation to both sides. `text`: EXPECTED in the language of the
        page, which a table asks for once."""
        if not self.why:
            return ""
        known = {name: number(self.why[name]) for name in ("value", "low", "high")}
        return text.format(**known, chance=round(100 * self.why["chance"]))


@dataclass(frozen=True, slots=True)
class Column:
    """`key`: in the address; `title`: its head."""

    key: str
    title: str
    sort: SortLink
    is_number: bool


@dataclass(frozen=True, slots=True)
class ShownTrial:
    """One row of the table. `cells`: of its metrics, then of its parameters, as HTML. `hours`: its GPU-hours."""

    trial: TrialRow
    cells: SafeString
    best: bool
    hours: str


@dataclass(frozen=True, slots=True)
class TrialTable:
    """One page of the table. `first`, `last`: the places of its rows, from 1 on. `count` of `all` trials are inside of
    the ranges that were asked for. `has_hours`: one of these rows has used GPUs; `growing`: one still holds them.
    `expects`: the search has said of one of these what it expects. `asked`: what else the address asks for, which a
    form repeats. `no_expectations`: why nothing is said of what was expected of any trial. The last five: addresses.
    """

    columns: tuple[Column, ...]
    rows: tuple[ShownTrial, ...]
    orders: tuple[tuple[str, str], ...]
    order: str
    first: int
    last: int
    count: int
    all: int
    has_hours: bool
    growing: bool
    expects: bool
    no_expectations: str
    hours_column: Column
    expected_column: Column
    asked: tuple[tuple[str, str], ...]
    previous: str
    next: str
    here: str
    csv: str
    json: str


def with_expected(tuning_job: TuningJob, trials: Sequence[TrialRow]) -> list[TrialRow]:
    """The same with what the search expected of each."""
    rows = Trial.objects.filter(tuning_job=tuning_job, why__isnull=False).order_by()
    if len(trials) <= PAGE:
        rows = rows.filter(number__in=[each.number for each in trials])
    known = dict(rows.values_list("number", "why"))
    return [each._replace(why=known.get(each.number) or NOTHING) for each in trials]


def finals(trials: Iterable[TrialRow]) -> dict[int, Mapping[str, float]]:
    """The values of the trials that have a result."""
    return {each.number: each.values for each in trials if each.state == TrialState.SUCCEEDED and each.values}


def table(
    tuning_job: TuningJob,
    study: StudySpec,
    trials: Sequence[TrialRow],
    inside: Sequence[TrialRow],
    best: Iterable[int],
    query: Mapping[str, str],
    axes: Mapping[str, str],
    here: str,
) -> TrialTable:
    """`inside`: the trials that are shown. `axes`: what the address asks for of the axes."""
    order = order_of(study, query)
    links = _Links(here, axes)
    ordered = in_order(study, inside, order, others_of(tuning_job, order))
    begin = _begin(query.get("page", ""), len(ordered))
    best_ones = set(best)
    cells = _Cells.of(study)
    shown_ones = _with_silent(study, with_expected(tuning_job, ordered[begin : begin + PAGE]))
    hours, growing = price.hours_of_jobs([each.job for each in shown_ones if each.job], timezone.now())
    return TrialTable(
        columns=tuple(
            _column(key, title, order, links) for key, title in _keys(study).items() if key not in LAST
        ),
        rows=tuple(
            ShownTrial(
                each,
                cells.of_trial(each),
                each.number in best_ones,
                _hours_of(each, hours),
            )
            for each in shown_ones
        ),
        orders=tuple(_orders(study)),
        order=order,
        first=begin + 1,
        last=min(begin + PAGE, len(ordered)),
        count=len(ordered),
        all=len(trials),
        has_hours=bool(hours),
        growing=growing or (order.lstrip("-") == HOURS and any(each.ended_at is None for each in trials)),
        expects=any(each.why for each in shown_ones),
        no_expectations=_no_expectations(study, trials),
        hours_column=_column(HOURS, _("GPU-hours"), order, links),
        expected_column=_column(EXPECTED_VALUE, _("Expected before"), order, links),
        asked=tuple(axes.items()),
        previous=links.address(order, begin // PAGE) if begin else "",
        next=links.address(order, begin // PAGE + 2) if begin + PAGE < len(ordered) else "",
        here=here,
        csv=links.file("trials.csv", order),
        json=links.file("trials.json", order),
    )


def _with_silent(study: StudySpec, trials: Sequence[TrialRow]) -> Sequence[TrialRow]:
    """With what is said of those that run and report no metric of the study."""
    since = timezone.now() - silent_trials.PATIENCE
    late = {
        each.job: each.number
        for each in trials
        if each.job and each.state == TrialState.ACTIVE and each.started_at and each.started_at <= since
    }
    found = silent_trials.of_jobs(study, late) if late else {}
    return [each._replace(silent=found.get(each.job or 0, "")) for each in trials] if found else trials


def _no_expectations(study: StudySpec, trials: Sequence[TrialRow]) -> str:
    """Why no trial says what was expected of it, as far as that follows from the study."""
    if study.algorithm != DEFAULT_ALGORITHM:
        return _(
            "This search has no model that says what it expects of a point. The Bayesian search has one."
        )
    if len(study.objectives) > 1:
        return _(
            "With several goals each trial is chosen for another mixture of them, so the search says nothing of what "
            "it expects of a single metric."
        )
    if sum(bool(each.values) for each in trials) <= FIRST_TRIALS:
        return _(
            "The first {number} trials are drawn at random. From then on the table says what the model has expected of "
            "each."
        ).format(number=FIRST_TRIALS)
    return ""


def _hours_of(trial: TrialRow, hours: Mapping[int, float]) -> str:
    used = hours.get(trial.job) if trial.job is not None else None
    return "" if used is None else hours_text(used)


def order_of(study: StudySpec, query: Mapping[str, str]) -> str:
    asked = query.get("sort", "")
    return asked if asked.lstrip("-") in _keys(study) else NUMBER


def as_csv(study: StudySpec, trials: Iterable[TrialRow], hours: Mapping[int, float]) -> str:
    """All trials, with each parameter and each metric in a column of its own. `hours`: GPU-hours by their numbers."""
    names, metrics = _parameter_names(study), [metric.name for metric in study.metrics]
    rest = ["step", "startTime", "endTime", "gpuHours", *(f"expected.{each}" for each in WHY), "reason"]
    head = ["trial", "state", "job", *names, *metrics, *rest]
    return csv_cells.lines(
        [[csv_cells.plain(each) for each in head], *(_line(each, names, metrics, hours) for each in trials)]
    )


def _line(
    trial: TrialRow, names: Sequence[str], metrics: Sequence[str], hours: Mapping[int, float]
) -> list[object]:
    reason = trial.infeasible or trial.stopped_early
    return [
        *(trial.number, trial.state, trial.job or ""),
        *(_csv_value(trial.parameters.get(name, "")) for name in names),
        *(trial.values.get(name, "") for name in metrics),
        "" if trial.step is None else trial.step,
        *("" if moment is None else moment.isoformat() for moment in (trial.started_at, trial.ended_at)),
        hours.get(trial.number, 0),
        *(trial.why.get(each, "") for each in WHY),
        csv_cells.plain(str(reason)),
    ]


def _csv_value(value: Value) -> Value:
    return csv_cells.plain(value) if isinstance(value, str) else value


def _parameter_names(study: StudySpec) -> list[str]:
    """Each name once: two conditions may have a parameter of one name."""
    return list(dict.fromkeys(each.name for each in flat(study.parameters)))


def _keys(study: StudySpec) -> dict[str, str]:
    """The columns that sort, and their heads."""
    return {
        NUMBER: _("Trial"),
        STATE: _("State"),
        **{f"{METRIC}{each.name}": visible(each.name) for each in study.metrics},
        **{f"{PARAMETER}{name}": visible(name) for name in _parameter_names(study)},
        DURATION: _("Ran for"),
        HOURS: _("GPU-hours"),
        EXPECTED_VALUE: _("Expected before"),
    }


def _column(key: str, title: str, order: str, links: _Links) -> Column:
    aria, wanted = next_order(order, key, key)
    return Column(key, title, SortLink(aria, links.address(wanted, 1)), key not in (NUMBER, STATE))


def _orders(study: StudySpec) -> Iterable[tuple[str, str]]:
    """The orders that a narrow screen offers, which shows no heads of columns."""
    for key, title in _keys(study).items():
        yield key, _("{column}, upwards").format(column=title)
        yield f"-{key}", _("{column}, downwards").format(column=title)


@dataclass(frozen=True, slots=True)
class _Links:
    """Addresses of the page at `here`; each repeats what is asked for of the axes."""

    here: str
    axes: Mapping[str, str]

    def address(self, order: str, page: int) -> str:
        return self._with(self.here, order, {"page": str(page)} if page > 1 else {}) + "#trials"

    def file(self, name: str, order: str) -> str:
        return self._with(f"{self.here}{name}", order, {})

    def _with(self, path: str, order: str, more: Mapping[str, str]) -> str:
        asked = {**self.axes, **({} if order == NUMBER else {"sort": order}), **more}
        return f"{path}?{urlencode(asked)}".rstrip("?")


def _begin(page: str, count: int) -> int:
    """Where the page begins that the address asks for; a page that does not exist is the last one."""
    wanted = int(page) if page.isascii() and page.isdigit() and 0 < len(page) < 7 else 1
    return min(max(wanted, 1) - 1, max(count - 1, 0) // PAGE) * PAGE


def others_of(tuning_job: TuningJob, order: str) -> Mapping[int, float]:
    """What trials are sorted by that is not in their rows, by their numbers."""
    key = order.lstrip("-")
    if key == HOURS:
        return price.used_hours(tuning_job, timezone.now())
    if key == EXPECTED_VALUE:
        rows = Trial.objects.filter(tuning_job=tuning_job, why__isnull=False).order_by()
        return {at: why["value"] for at, why in rows.values_list("number", "why") if why}
    return NOTHING_ELSE


def in_order(
    study: StudySpec, trials: Sequence[TrialRow], order: str, others: Mapping[int, float]
) -> list[TrialRow]:
    """Trials without a value come last, whichever way the others are sorted. `trials` come by their numbers. `others`:
    see `others_of`."""
    if order == NUMBER:
        return list(trials)
    key = order.lstrip("-")
    values = [(_sort_value(each, key, others), each) for each in trials]
    known = [(value, each) for value, each in values if value is not None]
    unknown = [each for value, each in values if value is None]
    known.sort(key=lambda pair: pair[0], reverse=order.startswith("-"))
    return [each for _value, each in known] + unknown


def _sort_value(trial: TrialRow, key: str, others: Mapping[int, float]) -> tuple[bool, float, str] | None:
    """Comparable with those of all trials: names are sorted behind numbers."""
    value: Value | None
    if key.startswith(METRIC):
        value = trial.values.get(key.removeprefix(METRIC))
    elif key.startswith(PARAMETER):
        value = trial.parameters.get(key.removeprefix(PARAMETER))
    elif key == STATE:
        value = trial.badge.word
    elif key in LAST:
        value = others.get(trial.number)
    else:
        value = trial.number if key == NUMBER else trial.seconds
    if value is None or value != value or value == math.inf:
        return None
    return (True, 0.0, value) if isinstance(value, str) else (False, float(value), "")


@dataclass(frozen=True, slots=True)
class _Cells:
    """The cells of the metrics and parameters of each row. A template would take ten times as long for a page of them.

    `metrics`: (name, what stands before its value); `parameters`: the same, with the kind of its values.
    """

    metrics: tuple[tuple[str, str], ...]
    parameters: tuple[tuple[str, Kind, str], ...]

    @classmethod
    def of(cls, study: StudySpec) -> _Cells:
        kinds = {each.name: each.kind for each in flat(study.parameters)}
        return cls(
            tuple((each.name, _before(each.name)) for each in study.metrics),
            tuple((name, kind, _before(name)) for name, kind in kinds.items()),
        )

    def of_trial(self, trial: TrialRow) -> SafeString:
        found = [f"{before}{number(trial.values.get(name))}</td>" for name, before in self.metrics]
        found += [
            f"{before}{escape(parameter_text(trial.parameters.get(name), kind))}</td>"
            for name, kind, before in self.parameters
        ]
        return mark_safe("".join(found))


def _before(name: str) -> str:
    return f'<td class="number mono" data-label="{escape(visible(name))}">'


def parameter_text(value: Value | None, kind: Kind) -> str:
    """A value as a table shows it: the program gets all digits."""
    if value is None:
        return "–"
    if isinstance(value, float) and kind is Kind.DOUBLE:
        return number(value)
    return visible(text_of(value, kind))


def by_result(metric: Metric, trials: Iterable[TrialRow]) -> list[TrialRow]:
    """The trials with a number for this metric, the best first."""
    found = [
        (cost(metric, each.values[metric.name]), each.number, each)
        for each in trials
        if each.state == TrialState.SUCCEEDED and math.isfinite(each.values.get(metric.name, math.nan))
    ]
    return [each for _cost, _number, each in sorted(found, key=lambda one: one[:2])]
