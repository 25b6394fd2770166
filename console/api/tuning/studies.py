"""Studies with what Vertex's HyperparameterTuningJob has no field for, and their extension."""

from __future__ import annotations

from typing import Annotated, NotRequired, TypedDict

from django.db import transaction
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.description import Id, Time, described, form
from console.api.request_body import RequestBody
from console.api.times import format_time
from console.api.tuning.documents import tuning_job_name
from console.api.views import TrainyardView, person
from console.auth import access
from jobs.models import TuningJob
from jobs.rules.lifecycle.states import JobState
from jobs.rules.tuning.parse_tuning_job import MAX_PARALLEL, MAX_TRIALS
from jobs.tuning import extending


class PriorDocument(TypedDict):
    """An earlier study, as it was when this one was submitted. `trialCount`: how many of its trials are known."""

    id: Id
    displayName: str
    trialCount: int


class StudyDocument(TypedDict):
    """`name`: the HyperparameterTuningJob, which has the trials. `extendTime`: when it last got more trials."""

    id: Id
    name: str
    displayName: str
    project: str
    owner: str
    state: str
    maxTrialCount: int
    parallelTrialCount: int
    maxFailedTrialCount: int
    priorStudies: list[PriorDocument]
    extendTime: NotRequired[Time]


class ExtendBody(TypedDict, total=False):
    """What is left out stays as it is. A study cannot get fewer trials than it has been promised."""

    maxTrialCount: Annotated[int, form(minimum=1, maximum=MAX_TRIALS)]
    parallelTrialCount: Annotated[int, form(minimum=1, maximum=MAX_PARALLEL)]
    maxFailedTrialCount: Annotated[int, form(minimum=0, maximum=MAX_TRIALS)]


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
        "priorStudies": [
            {"id": str(each.study_id), "displayName": each.display_name, "trialCount": len(each.trials)}
            for each in study.prior_studies.all()
        ],
    }
    if study.extended_at is not None:
        made["extendTime"] = format_time(study.extended_at)
    return made
