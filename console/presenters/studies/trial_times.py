"""The tab Timeline of a study: when each trial ran, beside which others, and how it ended: which were stopped early."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import heappop, heappush

from django.urls import reverse
from django.utils import timezone
from django.utils.translation import ngettext

from agents.infra.sentences import shown
from agents.infra.text import visible
from console.presenters.metrics.charts import HEIGHT, WIDTH
from console.presenters.studies.asked import Choice, chosen_metric, metric_choices
from console.presenters.studies.axes import Inside, axes_of
from console.presenters.studies.parallel import good_ones
from console.presenters.studies.read_trials import read_trials
from console.presenters.studies.trial_rows import TrialRow, by_result
from jobs.models import TuningJob
from jobs.rules.time_text import time_text
from jobs.rules.tuning.trials import TrialState
from jobs.tuning import snapshot

PAGE = "study-timeline"
# So many trials are drawn, the newest, and so many are in the table: first those that were stopped early.
MOST_DRAWN, MOST_ROWS = 2_000, 50
RUNS, GOOD, STOPPED, FAILED, REST = "running", "good", "stopped", "failed", "rest"


@dataclass(frozen=True, slots=True)
class Bars:
    """The bars of one kind. `ends`: dots at their ends."""

    kind: str
    path: str
    ends: str


@dataclass(frozen=True, slots=True)
class TrialTime:
    trial: TrialRow
    started_at: datetime
    kind: str


@dataclass(frozen=True, slots=True)
class TrialTimes:
    """`rows`: those of the table, of `count` trials that have started. `begin`, `end`: the ends of the axis."""

    metric: str
    metrics: Sequence[Choice]
    inside: Inside
    bars: tuple[Bars, ...]
    rows: tuple[TrialTime, ...]
    count: int
    begin: datetime | None
    end: datetime | None
    words: str


def trial_times(tuning_job: TuningJob, query: Mapping[str, str]) -> TrialTimes:
    study = snapshot.study_of(tuning_job)
    metric = chosen_metric(study, query)
    every = read_trials(tuning_job)
    axes = axes_of(study, every, query)
    inside = axes.inside(every)
    ranked = by_result(metric, inside)
    good = {each.number for each in ranked[: good_ones(ranked)]} if ranked else set()
    started = [
        TrialTime(each, each.started_at, _kind(each, each.number in good))
        for each in inside
        if each.started_at is not None
    ]
    now = timezone.now()
    drawn = sorted(started, key=lambda one: one.started_at)[-MOST_DRAWN:]
    begin = drawn[0].started_at if drawn else None
    end = max((_end(each.trial, now) for each in drawn), default=None)
    lanes = _lanes(drawn, now)
    here = reverse(PAGE, args=[tuning_job.pk])
    return TrialTimes(
        metric=visible(metric.name),
        metrics=metric_choices(study, query, here),
        inside=axes.inside_of(every, query, here),
        bars=tuple(_bars(drawn, lanes, begin, end, now)) if begin and end else (),
        rows=tuple(sorted(started, key=lambda one: (one.kind != STOPPED, -one.trial.number))[:MOST_ROWS]),
        count=len(started),
        begin=begin,
        end=end,
        words=_words(drawn, lanes, (end - begin).total_seconds()) if begin and end else "",
    )


def _kind(trial: TrialRow, good: bool) -> str:
    if trial.ended_at is None:
        return RUNS
    if trial.stopped_early:
        return STOPPED
    if trial.state == TrialState.INFEASIBLE:
        return FAILED
    return GOOD if good else REST


def _end(trial: TrialRow, now: datetime) -> datetime:
    """Of one that runs: now. Never before its start, whatever clocks say."""
    end = trial.ended_at or now
    return max(end, trial.started_at) if trial.started_at else end


def _lanes(trials: Sequence[TrialTime], now: datetime) -> list[int]:
    """A lane for each: the lowest that is free when it starts. So there are as many as ran at once."""
    free: list[int] = []
    busy: list[tuple[datetime, int]] = []
    found: list[int] = []
    for each in trials:
        while busy and busy[0][0] <= each.started_at:
            heappush(free, heappop(busy)[1])
        lane = heappop(free) if free else len(busy)
        heappush(busy, (_end(each.trial, now), lane))
        found.append(lane)
    return found


def _bars(
    trials: Sequence[TrialTime], lanes: Sequence[int], begin: datetime, end: datetime, now: datetime
) -> Iterable[Bars]:
    span = (end - begin).total_seconds() or 1.0
    height = HEIGHT / (max(lanes) + 1)
    paths: dict[str, list[str]] = {}
    ends: dict[str, list[str]] = {}
    for each, lane in zip(trials, lanes, strict=True):
        x, until = (
            round(WIDTH * (at - begin).total_seconds() / span)
            for at in (each.started_at, _end(each.trial, now))
        )
        y = f"{(lane + 0.5) * height:.4g}"
        # One unit is left free behind each, so that the next one in the lane is seen as another.
        paths.setdefault(each.kind, []).append(f"M{x} {y}H{max(until - 1, x + 1)}")
        ends.setdefault(each.kind, []).append(f"M{max(until - 1, x + 1)} {y}h.1")
    for kind in (REST, GOOD, RUNS, FAILED, STOPPED):
        if kind in paths:
            yield Bars(kind, "".join(paths[kind]), "".join(ends[kind]) if kind in (STOPPED, FAILED) else "")


def _words(trials: Sequence[TrialTime], lanes: Sequence[int], seconds: float) -> str:
    kinds = [each.kind for each in trials]
    text = ngettext(
        "{count} trial in {time}, at most {most} at once. {stopped} stopped early, {failed} without a result, {runs} "
        "running.",
        "{count} trials in {time}, at most {most} at once. {stopped} stopped early, {failed} without a result, {runs} "
        "running.",
        len(trials),
    )
    return text.format(
        count=len(trials),
        time=shown(time_text(round(seconds))),
        most=max(lanes) + 1,
        stopped=kinds.count(STOPPED),
        failed=kinds.count(FAILED),
        runs=kinds.count(RUNS),
    )
