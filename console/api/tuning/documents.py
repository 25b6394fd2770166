"""Writes tuning jobs as Vertex AI's HyperparameterTuningJob resources, with their trials."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from console.api import resources
from console.api.resources import Absolute, Document
from console.api.times import format_time
from jobs.models import Job, Trial, TuningJob
from jobs.rules.lifecycle.states import TERMINAL, JobState, wire_name
from jobs.rules.spec.json_fields import InvalidDocument, duration
from jobs.rules.tuning.measurements import thinned
from jobs.rules.tuning.space import flat
from jobs.rules.tuning.trials import Measurement
from jobs.tuning import measured, snapshot

# Clients that wait for the end read all of it every five seconds: so many measurements of all trials together, and of
# each at least a few.
MOST_MEASUREMENTS, FEWEST = 20_000, 10


def documents(
    tuning_jobs: Sequence[TuningJob], absolute: Absolute, with_measurements: bool = True
) -> list[Document]:
    """A few queries, however many trials there are. Of trials that are over, nothing of their jobs is read."""
    trials: dict[int, list[Trial]] = defaultdict(list)
    rows = Trial.objects.filter(tuning_job__in=[each.pk for each in tuning_jobs])
    rows = rows.defer("why") if with_measurements else rows.defer("why", "measurements")
    for trial in rows.order_by("number"):
        trials[trial.tuning_job_id].append(trial)
    live = [trial for of in trials.values() for trial in of if trial.ended_at is None]
    jobs = Job.every.in_bulk([trial.job_id for trial in live])
    for trial in live:
        trial.job = jobs[trial.job_id]
    uris = resources.web_access_uris(jobs.values(), absolute)
    curves: dict[int, list[Measurement]] = {}
    for each in tuning_jobs if with_measurements else ():
        curves |= _curves(each, trials[each.pk])
    return [_tuning_job(each, trials[each.pk], uris, curves) for each in tuning_jobs]


def _curves(tuning_job: TuningJob, trials: Sequence[Trial]) -> dict[int, list[Measurement]]:
    """By trial. Of one that runs, what is here by now."""
    names = [metric["metricId"] for metric in tuning_job.study["metrics"]]
    seen = measured.of_jobs([trial.job for trial in trials if trial.ended_at is None], names)
    most = max(MOST_MEASUREMENTS // max(len(trials), 1), FEWEST)
    found = {}
    for trial in trials:
        curve = seen.get(trial.job_id, measured.NOTHING).measurements
        if trial.ended_at is not None:
            curve = snapshot.read_measurements(trial.measurements)
        final = snapshot.read_measurement(trial.final)
        found[trial.pk] = thinned(curve, names[0], final, min(most, snapshot.MOST_MEASUREMENTS))
    return found


def tuning_job_name(tuning_job: TuningJob) -> str:
    return f"{_place(tuning_job)}/hyperparameterTuningJobs/{tuning_job.pk}"


def _place(tuning_job: TuningJob) -> str:
    """Where it is, and the jobs of its trials."""
    return f"projects/{tuning_job.project.name}/locations/{tuning_job.location_name}"


def _tuning_job(
    tuning_job: TuningJob,
    trials: Sequence[Trial],
    uris: Mapping[int, Mapping[str, str]],
    curves: Mapping[int, Sequence[Measurement]],
) -> Document:
    name, state = tuning_job_name(tuning_job), JobState(tuning_job.state)
    document: Document = {
        "name": name,
        "displayName": tuning_job.display_name,
        "studySpec": tuning_job.study,
        "maxTrialCount": tuning_job.max_trials,
        "parallelTrialCount": tuning_job.parallel_trials,
        "trialJobSpec": tuning_job.trial_spec,
        "state": wire_name(state),
        "createTime": format_time(tuning_job.created_at),
        "updateTime": format_time(tuning_job.updated_at),
    }
    if tuning_job.max_failed_trials:
        document["maxFailedTrialCount"] = tuning_job.max_failed_trials
    if tuning_job.labels:
        document["labels"] = tuning_job.labels
    if tuning_job.started_at:
        document["startTime"] = format_time(tuning_job.started_at)
    # As text: a number of 63 bits is none in JavaScript. By another name than that by which a submit asks for a seed:
    # who submits what was read, with some changes, did not ask for the same points.
    document["trainyard"] = {"drawnBySeed": str(tuning_job.seed)}
    if tuning_job.reason and state not in TERMINAL:
        document["trainyard"]["reason"] = str(tuning_job.reason)
    if state in TERMINAL:
        if tuning_job.ended_at:
            document["endTime"] = format_time(tuning_job.ended_at)
        if tuning_job.error_code is not None:
            document["error"] = {"code": tuning_job.error_code, "message": tuning_job.error_message}
    if not trials:
        return document
    place, order = _place(tuning_job), _Order.of(tuning_job)
    document["trials"] = [
        _trial(
            order,
            name,
            f"{place}/customJobs/{each.job_id}",
            each,
            uris.get(each.job_id, {}),
            curves.get(each.pk, ()),
        )
        for each in trials
    ]
    return document


class _Order(NamedTuple):
    """Where parameters and metrics stand in their study. PostgreSQL keeps the keys of JSON in an order of its own."""

    parameters: dict[str, int]
    metrics: dict[str, int]

    @classmethod
    def of(cls, tuning_job: TuningJob) -> _Order:
        try:
            study = snapshot.study_of(tuning_job)
        except InvalidDocument:
            return cls({}, {})  # an earlier release took it, and it stays readable
        each = (parameter.name for parameter in flat(study.parameters))
        return cls(_places(each), _places(metric.name for metric in study.metrics))


def _places(names: Iterable[str]) -> dict[str, int]:
    return {name: place for place, name in enumerate(names)}


def _ordered(values: Mapping[str, Any], places: Mapping[str, int]) -> list[tuple[str, Any]]:
    return sorted(values.items(), key=lambda each: places.get(each[0], len(places)))


def _trial(
    order: _Order,
    parent: str,
    job: str,
    trial: Trial,
    uris: Mapping[str, str],
    measurements: Sequence[Measurement],
) -> Document:
    document: Document = {
        "name": f"{parent}/trials/{trial.number}",
        "id": str(trial.number),
        "state": trial.state,
    }
    if trial.parameters is not None:
        document["parameters"] = [
            {"parameterId": name, "value": value}
            for name, value in _ordered(trial.parameters, order.parameters)
        ]
        document["customJob"] = job
    if trial.final is not None:
        document["finalMeasurement"] = _kept(trial.final, order)
    if measurements:
        document["measurements"] = [_measurement(each, order) for each in measurements]
    for field, moment in (("startTime", trial.started_at), ("endTime", trial.ended_at)):
        if moment is not None:
            document[field] = format_time(moment)
    if trial.infeasible_reason:
        document["infeasibleReason"] = trial.infeasible_reason
    if trial.ending:
        document["trainyard"] = {"ending": trial.ending}
    return {**document, "webAccessUris": dict(uris)} if uris else document


def _measurement(measurement: Measurement, order: _Order) -> Document:
    return _kept(snapshot.kept_measurement(measurement) or {}, order)


def _kept(kept: Mapping[str, Any], order: _Order) -> Document:
    return {
        "elapsedDuration": duration(kept["elapsed"]),
        "stepCount": str(kept["step"]),
        "metrics": [
            {"metricId": name, "value": value} for name, value in _ordered(kept["metrics"], order.metrics)
        ],
    }
