"""When a study has had enough trials (`studyStoppingConfig`).

The rules are read from top to bottom, and the first that applies decides. The two minima come first: they veto.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from jobs.rules.tuning.lost_trials import counted
from jobs.rules.tuning.study import Limit, StudyStopping
from jobs.rules.tuning.trials import FINISHED, TrialState, cost
from jobs.rules.tuning.views import TrialView, TuningView


@dataclass(frozen=True, slots=True)
class Enough:
    """`asap`: running trials are cancelled. `look_again_s`: when time alone may change the answer."""

    enough: bool = False
    asap: bool = False
    look_again_s: float | None = None


def is_enough(view: TuningView, now: datetime) -> Enough:
    stopping = view.study.stopping
    if stopping is None:
        return Enough()
    later = _next_moment(view, stopping, now)
    if any(_vetoes(view, stopping, now)):
        return Enough(look_again_s=later)
    if any(_reasons(view, stopping, now)):
        return Enough(True, stopping.stop_asap)
    return Enough(look_again_s=later)


def _vetoes(view: TuningView, stopping: StudyStopping, now: datetime) -> Iterator[bool]:
    least = _moment(stopping.minimum_runtime, view.started_at)
    yield stopping.minimum_runtime is not None and (least is None or now < least)
    yield len(_over(view)) < stopping.min_trials


def _reasons(view: TuningView, stopping: StudyStopping, now: datetime) -> Iterator[bool]:
    most = _moment(stopping.maximum_runtime, view.started_at)
    yield most is not None and now >= most
    yield bool(stopping.max_trials) and len(_over(view)) >= stopping.max_trials
    if len(view.study.objectives) == 1:
        yield (
            bool(stopping.max_trials_no_progress)
            and _trials_since_best(view) >= stopping.max_trials_no_progress
        )
        best_at, patience = _best_at(view), stopping.max_seconds_no_progress
        yield patience is not None and best_at is not None and now >= best_at + timedelta(seconds=patience)


def _next_moment(view: TuningView, stopping: StudyStopping, now: datetime) -> float | None:
    moments = [
        _moment(stopping.minimum_runtime, view.started_at),
        _moment(stopping.maximum_runtime, view.started_at),
    ]
    if stopping.max_seconds_no_progress is not None and (best_at := _best_at(view)) is not None:
        moments.append(best_at + timedelta(seconds=stopping.max_seconds_no_progress))
    ahead = [(moment - now).total_seconds() for moment in moments if moment is not None and moment > now]
    return min(ahead, default=None)


def _moment(limit: Limit | None, started_at: datetime | None) -> datetime | None:
    """None: there is no such bound, or its clock does not run yet."""
    if limit is None:
        return None
    if limit.moment is not None:
        return limit.moment
    return started_at + timedelta(seconds=limit.seconds or 0.0) if started_at else None


def _over(view: TuningView) -> list[TrialView]:
    return [each for each in counted(view.trials) if each.state in FINISHED and each.drawn]


def _by_end(view: TuningView) -> list[TrialView]:
    return sorted(_over(view), key=lambda each: (each.job_ended_at is None, each.job_ended_at, each.number))


def _best(view: TuningView) -> tuple[int, TrialView] | None:
    """The position of the best trial in the order of the ends, and the trial. Of equal ones the first."""
    metric = view.study.objectives[0]
    found = [
        (cost(metric, each.final.metrics[metric.name]), position, each)
        for position, each in enumerate(_by_end(view))
        if each.state is TrialState.SUCCEEDED and each.final is not None
    ]
    if not found:
        return None
    _, position, trial = min(found, key=lambda one: one[:2])
    return position, trial


def _trials_since_best(view: TuningView) -> int:
    best = _best(view)
    return len(_over(view)) - best[0] - 1 if best else 0


def _best_at(view: TuningView) -> datetime | None:
    best = _best(view)
    return best[1].job_ended_at if best else None
