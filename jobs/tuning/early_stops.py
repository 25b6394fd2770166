"""Trials that are not worth their GPUs any more, by the rule that the study asks for.

The verdict is a row (`Trial.stopped_early`) before anything is stopped, so it is carried out whatever is restarted.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.utils.module_loading import import_string

from agents.infra.texts import said
from jobs.models import Trial
from jobs.rules.lifecycle.states import JobState
from jobs.rules.tuning.study import Rule, StudySpec
from jobs.rules.tuning.trials import Trial as TriedTrial
from jobs.rules.tuning.trials import TrialState
from jobs.tuning import measured, snapshot

WHY = {
    Rule.MEDIAN: said("Stopped early by the median rule: the others were better at the same step."),
    Rule.DECAY_CURVE: said("Stopped early by the decay curve rule: it would not become the best."),
    Rule.CONVEX: said("Stopped early by the convex rule: it would not become the best."),
}


def note(study: StudySpec, rows: Sequence[Trial]) -> None:
    """Note which running trials are to be stopped. In the caller's transaction."""
    running = [row for row in rows if _is_running(row)]
    if study.early is None or not running or len(study.objectives) != 1:
        return
    # By name: one of the rules imports numpy (drawing.py).
    stops = import_string("jobs.rules.tuning.stopping.early_stopping.stops")
    metric = study.objectives[0]
    seen = measured.of_jobs([row.job for row in running], [metric.name])
    ended = _ended(rows)
    for row in running:
        trial = snapshot.tried(row, seen.get(row.job_id, measured.NOTHING).measurements)
        if stops(trial, ended, metric, study.early):
            row.stopped_early = WHY[study.early.rule]
            Trial.objects.filter(pk=row.pk, stopped_early="").update(stopped_early=row.stopped_early)


def _ended(rows: Sequence[Trial]) -> list[TriedTrial]:
    """The trials that ran to their end, with the curves that were kept then."""
    ended = [row for row in rows if row.state == TrialState.SUCCEEDED and not row.stopped_early]
    curves = dict(Trial.objects.filter(pk__in=[row.pk for row in ended]).values_list("pk", "measurements"))
    return [snapshot.tried(row, snapshot.read_measurements(curves[row.pk])) for row in ended]


def _is_running(row: Trial) -> bool:
    return row.state == TrialState.ACTIVE and row.job.state == JobState.RUNNING and not row.stopped_early
