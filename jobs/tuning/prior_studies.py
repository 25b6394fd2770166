"""The earlier studies that a study learns from, copied when it is submitted.

A copy means that each suggestion follows from rows that never change: the earlier study may get more trials, or be
deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agents.infra.refusals import Refused
from agents.infra.texts import said
from jobs.models import PriorStudy, Project, Trial, TuningJob
from jobs.rules.tuning import prior
from jobs.rules.tuning.study import StudySpec
from jobs.rules.tuning.trials import Trial as TriedTrial
from jobs.rules.tuning.trials import TrialState
from jobs.tuning import snapshot


@dataclass(frozen=True, slots=True)
class Earlier:
    """One of them, with the trials that are taken from it."""

    study_id: int
    display_name: str
    trials: tuple[TriedTrial, ...]


def find(study: StudySpec, project: Project) -> list[Earlier]:
    """Raises Refused for one that is not there, or from which nothing can be learnt."""
    return [_found(study, project, place, name) for place, name in enumerate(study.prior)]


def keep(tuning_job: TuningJob, earlier: Sequence[Earlier]) -> None:
    PriorStudy.objects.bulk_create(
        PriorStudy(
            tuning_job=tuning_job,
            place=place,
            study_id=each.study_id,
            display_name=each.display_name,
            trials=[_kept(trial) for trial in each.trials],
        )
        for place, each in enumerate(earlier)
    )


def trials_of(tuning_job: TuningJob) -> tuple[tuple[TriedTrial, ...], ...]:
    """What the study learns from, beside its own trials."""
    rows = PriorStudy.objects.filter(tuning_job=tuning_job).order_by("place")
    return tuple(tuple(map(_read, trials)) for trials in rows.values_list("trials", flat=True))


def _found(study: StudySpec, project: Project, place: int, name: str) -> Earlier:
    field = f"{prior.PRIOR}[{place}]"
    of_project, number = prior.named(name) or ("", 0)
    row = TuningJob.objects.filter(pk=number, project=project).first()
    if row is None or of_project not in ("", project.name):
        raise Refused(
            field, said("is no study of project {project}: {name}.", project=project.name, name=name)
        )
    if why := prior.mismatch(study, snapshot.study_of(row)):
        raise Refused(field, why)
    rows = Trial.objects.filter(tuning_job=row, state=TrialState.SUCCEEDED).select_related("job")
    tried = [snapshot.tried(each) for each in rows.defer("measurements", "job__spec")]
    taken = prior.taken(study, tried)
    if not taken:
        raise Refused(
            field,
            said("has no trial with a result in the space of this study: nothing can be learnt from it."),
        )
    return Earlier(row.pk, row.display_name, tuple(taken))


def _kept(trial: TriedTrial) -> dict[str, Any]:
    final = snapshot.kept_measurement(trial.final)
    return {"number": trial.number, "parameters": dict(trial.parameters), "final": final}


def _read(kept: dict[str, Any]) -> TriedTrial:
    final = snapshot.read_measurement(kept["final"])
    return TriedTrial(kept["number"], TrialState.SUCCEEDED, kept["parameters"], final=final)
