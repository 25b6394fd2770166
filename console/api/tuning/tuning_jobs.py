"""Vertex AI's HyperparameterTuningJob resource: create, get, list, cancel, delete."""

from __future__ import annotations

from django.db import transaction
from django.http import Http404
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from console.api import paging, resources
from console.api.errors import BadRequest
from console.api.jobs import filters
from console.api.jobs.custom_jobs import as_header, in_location, request_id
from console.api.tuning.documents import documents
from console.api.views import GoogleView, absolute_url, person
from console.auth import access
from jobs.models import TuningJob
from jobs.rules.spec.parse import parse_spec
from jobs.rules.tuning.study_advice import study_advice
from jobs.scheduling.machine_types import of_location
from jobs.tuning import tuning_jobs
from jobs.tuning.snapshot import study_of


class TuningJobsView(GoogleView):
    """P/hyperparameterTuningJobs: POST creates, GET lists."""

    def post(self, request: Request, project: str, location: str) -> Response:
        tenant = access.project_or_404(request.user, "submit", project)
        document = request.data
        if not isinstance(document, dict):
            raise BadRequest("", "The body must be a HyperparameterTuningJob as a JSON object.")
        with transaction.atomic():
            made = tuning_jobs.create(
                tenant,
                person(request),
                document,
                location,
                request_id(request),
                timezone.now(),
                access.can(request.user, "prioritize", tenant),
            )
        return Response(_documents(request, [made])[0], headers=as_header(tuning_warnings(made, location)))

    def get(self, request: Request, project: str, location: str) -> Response:
        tenant = access.project_or_404(request.user, "see", project)
        text = request.query_params.get("filter", "")
        rows = in_location(TuningJob.objects.filter(project=tenant), location).filter(filters.parse(text))
        found, token = paging.newest_first(request, rows.select_related("project"), text)
        # A page may have a thousand studies: the curves of their trials are for those who ask for one of them.
        return Response({"hyperparameterTuningJobs": _documents(request, found, False), **token})


class TuningJobView(GoogleView):
    """P/hyperparameterTuningJobs/{id}: GET, DELETE."""

    def get(self, request: Request, project: str, location: str, tuning_id: str) -> Response:
        return Response(_documents(request, [_found(request, "see", project, tuning_id)])[0])

    def delete(self, request: Request, project: str, location: str, tuning_id: str) -> Response:
        found = _found(request, "delete", project, tuning_id)
        now = timezone.now()
        with transaction.atomic():
            tuning_jobs.delete(found, person(request).get_username(), now)
        return Response(
            resources.delete_operation(f"projects/{project}/locations/{location}/operations/{found.pk}", now)
        )


class CancelView(GoogleView):
    """P/hyperparameterTuningJobs/{id}:cancel. Asynchronous: the answer only says that the request was accepted."""

    # The body is {} or empty, with any content type. It is not read.
    def post(self, request: Request, project: str, location: str, tuning_id: str) -> Response:
        found = _found(request, "cancel", project, tuning_id)
        with transaction.atomic():
            tuning_jobs.cancel(found, person(request).get_username(), timezone.now())
        return Response({})


def tuning_warnings(made: TuningJob, location: str) -> list[str]:
    """What may not do what the person wants."""
    return list(study_advice(study_of(made), parse_spec(made.trial_spec, of_location(location))))


def _documents(
    request: Request, found: list[TuningJob], with_measurements: bool = True
) -> list[resources.Document]:
    mask = resources.read_mask(request)
    shown = documents(found, lambda path: absolute_url(request, path), with_measurements)
    return [resources.masked(each, mask) for each in shown]


def _found(request: Request, verb: access.Verb, project: str, tuning_id: str) -> TuningJob:
    """The tuning job. The location in the address is not compared, because the id alone identifies it."""
    tenant = access.project_or_404(request.user, "see", project)
    found = TuningJob.objects.select_related("project").filter(pk=int(tuning_id), project=tenant).first()
    if found is None:
        raise Http404
    access.require(request.user, verb, found)
    return found
