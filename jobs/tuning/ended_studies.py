"""The message that a study has ended: for the addresses of its owner and of its project that ask for it.

It is written in the transaction that ends the study, so no end is told twice, and none is lost.
"""

from __future__ import annotations

from datetime import datetime

from agents.infra.texts import join, said, said_of
from jobs.models import Trial, TuningJob
from jobs.notifications import create
from jobs.rules.lifecycle.states import JobState
from jobs.rules.list_text import list_text
from jobs.rules.notifications import EVENTS
from jobs.rules.time_text import time_text
from jobs.rules.tuning.measurements import best_trial, best_trials
from jobs.rules.tuning.study import StudySpec
from jobs.rules.tuning.trials import Ending, TrialState
from jobs.tuning import snapshot

# Of several best trials, so many are named; of each so many parameters.
MOST_BEST, MOST_PARAMETERS = 3, 12


def tell(tuning_job: TuningJob, now: datetime) -> None:
    """`tuning_job`: as it is written now."""
    rows = list(
        Trial.objects.filter(tuning_job=tuning_job)
        .exclude(ending=Ending.HOSTS)
        .order_by("number")
        .only("number", "state", "final", "parameters", "tuning_job")
    )
    study, state = snapshot.study_of(tuning_job), JobState(tuning_job.state)
    best = _best(study, rows)
    name = " ".join(tuning_job.display_name.split())
    started = tuning_job.started_at
    create.create_for_study(
        tuning_job,
        said("Study “{name}”: {what}", name=name, what=EVENTS[state.lower()]),
        join(
            "\n", [part for part in (_counts(tuning_job, rows, now), tuning_job.error_message, *best) if part]
        ),
        {
            "trials": len(rows),
            "succeeded": sum(row.state == TrialState.SUCCEEDED for row in rows),
            "infeasible": sum(row.state == TrialState.INFEASIBLE for row in rows),
            "best": [_document(row) for row in _best_rows(study, rows)],
            "seconds": (now - started).total_seconds() if started else None,
        },
        now,
    )


def _counts(tuning_job: TuningJob, rows: list[Trial], now: datetime) -> str:
    infeasible = sum(row.state == TrialState.INFEASIBLE for row in rows)
    trials = said_of(len(rows), "{number} trial", "{number} trials", number=len(rows))
    took = time_text((now - tuning_job.started_at).total_seconds()) if tuning_job.started_at else ""
    if not took:
        return said("{trials}; none of them ran.", trials=trials)
    if not infeasible:
        return said("{trials} in {time}.", trials=trials, time=took)
    return said(
        "{trials} in {time}, {count} of them without a result.", trials=trials, time=took, count=infeasible
    )


def _best_rows(study: StudySpec, rows: list[Trial]) -> list[Trial]:
    finals = {
        row.number: found.metrics
        for row in rows
        if row.state == TrialState.SUCCEEDED and (found := snapshot.read_measurement(row.final))
    }
    if len(study.objectives) > 1:
        numbers = best_trials(study, finals)
    else:
        best = best_trial(study, finals)
        numbers = [] if best is None else [best]
    return [row for row in rows if row.number in numbers]


def _best(study: StudySpec, rows: list[Trial]) -> list[str]:
    found = _best_rows(study, rows)
    lines = [
        said(
            "Best, trial {number}: {metrics}, with {parameters}",
            number=row.number,
            metrics=list_text(_pairs((row.final or {}).get("metrics"))),
            parameters=list_text(_pairs(row.parameters), MOST_PARAMETERS),
        )
        for row in found[:MOST_BEST]
    ]
    if len(found) > MOST_BEST:
        lines.append(said("And {count} more that are as good.", count=len(found) - MOST_BEST))
    return [*lines] or [said("No trial has a result.")]


def _pairs(values: dict[str, object] | None) -> list[str]:
    return [
        f"{name}={value:.5g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in (values or {}).items()
    ]


def _document(row: Trial) -> dict[str, object]:
    metrics = (row.final or {}).get("metrics")
    return {"id": str(row.number), "metrics": metrics, "parameters": row.parameters}
