"""The trials of a study from the database: those that may have changed since this process read them.

A trial that is over never changes any more once the verdicts of the rules on it are noted, so of a study of thousands
of trials a page reads little more than the few that run. Only its job may still be deleted: that is asked for each
time.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from datetime import timedelta
from itertools import islice

from django.db.models import Count, Q

from agents.infra.shared_answers import SharedAnswers
from agents.infra.sql import Parameter, Row, SelectStatement, read_ahead
from console.presenters.studies.trial_rows import TrialRow
from jobs.models import Trial, TuningJob

# The last of so many studies are remembered, and of each at most so many trials, for so long.
STUDIES, TRIALS, KEPT = 10, 2_000, timedelta(hours=1)
_COLUMNS = (
    *("pk", "number", "state", "job_id", "parameters", "final", "infeasible_reason", "stopped_early"),
    *("started_at", "ended_at", "shadow", "ending"),
)
_unsettled = SelectStatement(
    lambda: (
        Trial.objects.filter(Q(ended_at=None) | Q(shadow__isnull=True), tuning_job=Parameter("study"))
        .order_by()
        .values_list(*_COLUMNS)
    )
)
_how_many_settled = SelectStatement(
    lambda: (
        Trial.objects.filter(tuning_job=Parameter("study"), ended_at__isnull=False, shadow__isnull=False)
        .order_by()
        .values_list("tuning_job")
        .annotate(Count("pk"))
    )
)
_settled = SelectStatement(
    lambda: (
        Trial.objects.filter(tuning_job=Parameter("study"), ended_at__isnull=False, shadow__isnull=False)
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
    """All trials, by three queries or four, whatever their number. What was expected of them is not read:
    `with_expected`."""
    study = tuning_job.pk
    known = _known.get(study, dict)
    found = dict(known)
    with read_ahead({each: {"study": study} for each in (_unsettled, _how_many_settled, _without_job)}):
        # The first: one that is settled between two of them is read a second time, and not left out.
        found |= {row[0]: _read(row[1:]) for row in _unsettled(study=study)}
        settled = sum(count for _study, count in _how_many_settled(study=study))
        if settled != len(known):
            found |= _read_settled(study, known)
        for pk in _without_job.column(study=study):
            if pk in found:
                found[pk] = found[pk]._replace(job=None)
    return sorted(found.values(), key=lambda trial: trial.number)


def _read_settled(study: int, known: dict[int, TrialRow]) -> dict[int, TrialRow]:
    """Those that are not known, which are remembered from now on."""
    found = {row[0]: _read(row[1:]) for row in _settled(study=study, known=list(known))}
    known |= islice(found.items(), max(TRIALS - len(known), 0))
    return found


def version_of(trials: Sequence[TrialRow]) -> Hashable:
    """Equal for two readings of a study that have found the same. Of the trials that never change it is enough how many
    there are: there come only more of them."""
    others = [each for each in trials if each.verdicts is None]
    return len(trials) - len(others), repr(others), tuple(each.number for each in trials if each.job is None)


def _read(row: Row) -> TrialRow:
    """Of the values of _COLUMNS behind the first."""
    number, state, job, parameters, kept, infeasible, stopped_early, *times, verdicts, ending = row
    started_at, ended_at = times
    return TrialRow(
        number=number,
        state=state,
        job=job,
        parameters=parameters or {},
        values={name: float(value) for name, value in kept["metrics"].items()} if kept else {},
        step=kept["step"] if kept else None,
        infeasible=infeasible,
        stopped_early=stopped_early,
        started_at=started_at,
        ended_at=ended_at,
        verdicts=None if ended_at is None else verdicts,
        ending=ending,
    )
