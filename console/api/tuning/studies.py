"""Studies with what Vertex's HyperparameterTuningJob has no field for, and their extension."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NotRequired, TypedDict

from django.db import transaction
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.description import Id, Time, described, form, one_of
from console.api.request_body import RequestBody
from console.api.times import format_time
from console.api.tuning.documents import tuning_job_name
from console.api.views import TrainyardView, person
from console.auth import access
from console.presenters.studies.read_trials import read_trials
from console.presenters.studies.study_cost import seconds_of, shadows_of, verdicts_of
from console.presenters.studies.trial_rows import TrialRow, with_expected
from jobs.models import TuningJob
from jobs.models.first_rows import DEFAULT
from jobs.rules.lifecycle.states import JobState
from jobs.rules.tuning.parse_tuning_job import MAX_PARALLEL, MAX_TRIALS
from jobs.rules.tuning.price import Outlook, Price, outlook_text, price_text
from jobs.rules.tuning.study import Rule
from jobs.rules.tuning.trials import Ending
from jobs.tuning import extending, outlooks, price, tuning_jobs
from jobs.tuning.snapshot import study_of


class PriorDocument(TypedDict):
    """An earlier study, as it was when this one was submitted. `trialCount`: how many of its trials are known."""

    id: Id
    displayName: str
    trialCount: int


class ShadowDocument(TypedDict):
    """What a rule that stops trials early would have done. `on`: the study asks for it. `savedShare`: of the time of
    the trials, which is that of their GPU-hours."""

    rule: Annotated[str, one_of(Rule)]
    on: bool
    stoppedTrialCount: int
    savedShare: float
    keepsBest: bool
    text: str


class PriceDocument(TypedDict):
    """`usualGpuHours`: left out where nobody knows yet how long such a trial takes."""

    trialCount: int
    gpusPerTrial: int
    usualGpuHours: NotRequired[float]
    mostGpuHours: float
    text: str


class OutlookDocument(TypedDict):
    """What the model expects of the best value of a metric after so many more trials; `low` to `high` in 8 of 10
    cases."""

    trialCount: int
    now: float
    value: float
    low: float
    high: float
    metric: str
    text: str


class ExpectedDocument(TypedDict):
    """What the search expected of a trial when it chose its parameters: the metric's value, one standard deviation to
    both sides, and the chance of a new best value."""

    value: float
    low: float
    high: float
    chance: float


class TrialDocument(TypedDict):
    """`wouldStop`: by rule, after how many seconds it would have stopped the trial; missing before that is known."""

    id: Id
    gpuHours: float
    expected: NotRequired[ExpectedDocument]
    wouldStop: NotRequired[dict[str, float]]


class StudyDocument(TypedDict):
    """`name`: the HyperparameterTuningJob, which has the trials. `seed`: a whole number. `extendTime`: when it last got
    more trials."""

    id: Id
    name: str
    displayName: str
    project: str
    owner: str
    state: str
    maxTrialCount: int
    parallelTrialCount: int
    maxFailedTrialCount: int
    seed: str
    priorStudies: list[PriorDocument]
    gpuHours: float
    price: PriceDocument
    outlook: list[OutlookDocument]
    shadow: list[ShadowDocument]
    trials: list[TrialDocument]
    extendTime: NotRequired[Time]


class ExtendBody(TypedDict, total=False):
    """What is left out stays as it is. A study cannot get fewer trials than it has been promised."""

    maxTrialCount: Annotated[int, form(minimum=1, maximum=MAX_TRIALS)]
    parallelTrialCount: Annotated[int, form(minimum=1, maximum=MAX_PARALLEL)]
    maxFailedTrialCount: Annotated[int, form(minimum=0, maximum=MAX_TRIALS)]


class PriceBody(TypedDict):
    """`hyperparameterTuningJob`: as it would be submitted."""

    project: str
    location: NotRequired[str]
    hyperparameterTuningJob: dict[str, Any]


class PriceView(TrainyardView):
    """`POST /api/v1/studies:price`: what a study would cost. Nothing is submitted."""

    @described("Tell what a study would cost", PriceDocument, needs="submit", own="submit", body=PriceBody)
    def post(self, request: Request) -> Response:
        body = RequestBody(request, PriceBody)
        project = access.project_or_404(request.user, "submit", body.text("project"))
        location = body.text("location", DEFAULT, 63)
        asked = tuning_jobs.read(body.get("hyperparameterTuningJob"), project, location)
        found = price.price_of_new(asked.trial_spec, asked.max_trials, project, person(request).pk, location)
        return Response(price_document(found))


class StudyView(TrainyardView):
    """`GET /api/v1/studies/<id>`."""

    @described("Get a study", StudyDocument, needs="see")
    def get(self, request: Request, tuning_id: str) -> Response:
        return Response(document(found(request, "see", tuning_id)))


class ExtendView(TrainyardView):
    """`POST /api/v1/studies/<id>:extend`: more trials for a study that runs, or that is over and then goes on."""

    @described("Give a study more trials", StudyDocument, needs="cancel", body=ExtendBody)
    def post(self, request: Request, tuning_id: str) -> Response:
        study = found(request, "cancel", tuning_id)
        RequestBody(request, ExtendBody)
        with transaction.atomic():
            extended = extending.extend(
                study.pk, request.data, person(request).get_username(), timezone.now()
            )
        return Response(document(extended))


def found(request: Request, verb: access.Verb, tuning_id: str) -> TuningJob:
    rows = TuningJob.objects.select_related("project")
    return access.get_or_404(request.user, verb, rows, pk=int(tuning_id))


def document(study: TuningJob) -> StudyDocument:
    trials = with_expected(study, read_trials(study))
    verdicts = verdicts_of(trials)
    hours = price.used_hours(study, timezone.now())
    found = outlooks.read(study)
    begun = sum(each.started_at is not None and each.ending != Ending.HOSTS for each in trials)
    left = max(study.max_trials - begun, 0)
    still, *prices = price.price_of_more(study, [left, *(each.trials for each in found)], seconds_of(trials))
    spec = study_of(study)
    made: StudyDocument = {
        "id": str(study.pk),
        "name": tuning_job_name(study),
        "displayName": study.display_name,
        "project": study.project.name,
        "owner": study.owner_name,
        "state": JobState(study.state),
        "maxTrialCount": study.max_trials,
        "parallelTrialCount": study.parallel_trials,
        "maxFailedTrialCount": study.max_failed_trials,
        "seed": str(study.seed),
        "priorStudies": [
            {"id": str(each.study_id), "displayName": each.display_name, "trialCount": len(each.trials)}
            for each in study.prior_studies.all()
        ],
        "gpuHours": sum(hours.values()),
        "price": price_document(still),
        "outlook": [
            _outlook(each, outlook_text(each, cost)) for each, cost in zip(found, prices, strict=True)
        ],
        "shadow": [
            {
                "rule": str(each.rule),
                "on": each.on,
                "stoppedTrialCount": each.found.stopped,
                "savedShare": each.found.saved_share,
                "keepsBest": each.found.keeps_best,
                "text": each.text,
            }
            for each in shadows_of(spec, trials, verdicts, bool(still.gpus))
        ],
        "trials": [_trial(each, hours.get(each.number, 0.0), verdicts.get(each.number)) for each in trials],
    }
    if study.extended_at is not None:
        made["extendTime"] = format_time(study.extended_at)
    return made


def price_document(found: Price) -> PriceDocument:
    made: PriceDocument = {
        "trialCount": found.trials,
        "gpusPerTrial": found.gpus,
        "mostGpuHours": found.most_hours,
        "text": price_text(found),
    }
    return made if found.usual_hours is None else {**made, "usualGpuHours": found.usual_hours}


def _outlook(found: Outlook, text: str) -> OutlookDocument:
    return {
        "trialCount": found.trials,
        "now": found.now,
        "value": found.value,
        "low": found.low,
        "high": found.high,
        "metric": found.metric,
        "text": text,
    }


def _trial(trial: TrialRow, hours: float, verdicts: Mapping[str, float] | None) -> TrialDocument:
    made: TrialDocument = {"id": str(trial.number), "gpuHours": hours}
    if trial.why:
        made["expected"] = {
            "value": trial.why["value"],
            "low": trial.why["low"],
            "high": trial.why["high"],
            "chance": trial.why["chance"],
        }
    if verdicts is not None:
        made["wouldStop"] = dict(verdicts)
    return made
