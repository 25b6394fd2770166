"""The trials of a study from the database: those that may have changed since this process read them.

A trial that is over never changes any more once the verdicts of the rules on it are noted, so of a study of thousands
of trials a page reads little more than the few that run. Only its job may still be deleted: that is asked for each
time.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from agents.infra.shared_answers import SharedAnswers
from agents.infra.sql import Parameter, Row, SelectStatement
from console.presenters.studies.trial_rows import TrialRow
from jobs.models import Trial, TuningJob
from jobs.tuning.snapshot import read_measurement

# The last of so many studies are remembered, and of each at most so many trials, for so long.
STUDIES, TRIALS, KEPT = 10, 2_000, timedelta(minutes=10)
_COLUMNS = (
    *("pk", "number", "state", "job_id", "parameters", "final", "infeasible_reason", "stopped_early"),
    *("started_at", "ended_at", "shadow"),
)
_changed = SelectStatement(
    lambda: (
        Trial.objects.filter(tuning_job=Parameter("study"))
        .exclude(pk__among=Parameter("known"))
        .order_by()
        .values_list(*_COLUMNS)
    )
)
_without_job = SelectStatement(
    lambda: (
        Trial.objects.filter(tuning_job=Parameter("study"), job__deleted_at__isnull=False)
        .order_by()
        .values_list("pk")
    )
)
# By the id of the study: its trials that never change, by their ids.
_known: SharedAnswers[int, dict[int, TrialRow]] = SharedAnswers(KEPT, STUDIES)


def read_trials(tuning_job: TuningJob) -> list[TrialRow]:
    """All trials, by two queries, whatever their number. What was expected of them is not read: `with_expected`."""
    known = _known.get(tuning_job.pk, dict)
    found = dict(known)
    changed = {row[0]: _read(row[1:]) for row in _changed(study=tuning_job.pk, known=list(found))}
    found |= changed
    for pk, trial in changed.items():
        if trial.verdicts is not None and len(known) < TRIALS:
            known[pk] = trial
    for pk in _without_job.column(study=tuning_job.pk):
        if pk in found:
            found[pk] = replace(found[pk], job=None)
    return sorted(found.values(), key=lambda trial: trial.number)


def _read(row: Row) -> TrialRow:
    """Of the values of _COLUMNS behind the first."""
    number, state, job, parameters, kept, infeasible, stopped_early, started_at, ended_at, verdicts = row
    final = read_measurement(kept)
    return TrialRow(
        number=number,
        state=state,
        job=job,
        parameters=parameters or {},
        values=final.metrics if final else {},
        step=final.step if final else None,
        infeasible=infeasible,
        stopped_early=stopped_early,
        started_at=started_at,
        ended_at=ended_at,
        verdicts=None if ended_at is None else verdicts,
    )
