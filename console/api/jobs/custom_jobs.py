"""Vertex AI's CustomJob resource: create, get, list, cancel, delete."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, TypeVar

from django.db import transaction
from django.db.models import Model, QuerySet
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from console.api import paging, resources
from console.api.errors import BadRequest
from console.api.jobs import filters
from console.api.views import GoogleView, absolute_url, person
from console.auth import access
from jobs import services
from jobs.models import Job
from jobs.projects import log_storage
from jobs.rules.spec.advice import WARNING, WITHOUT
from jobs.scheduling import output_directories

# A page is built in memory, and one spec may have megabytes.
MAX_PAGE_BYTES = 8 * 1024 * 1024
MAX_WARNING = 600
Row = TypeVar("Row", bound=Model)
REQUEST_ID = re.compile(r"[\x21-\x7e]{1,200}")


class JobsView(GoogleView):
    """P/customJobs: POST creates, GET lists."""

    def post(self, request: Request, project: str, location: str) -> Response:
        tenant = access.project_or_404(request.user, "submit", project)
        document = request.data
        if not isinstance(document, dict):
            raise BadRequest("", "The body must be a CustomJob as a JSON object.")
        with transaction.atomic():
            job = services.submit(
                project=tenant,
                user=person(request),
                document=document,
                location=location,
                request_id=request_id(request),
                now=timezone.now(),
                may_prioritize=access.can(request.user, "prioritize", tenant),
            )
        return Response(resources.custom_job(job, {}), headers=warnings(job))

    def get(self, request: Request, project: str, location: str) -> Response:
        tenant = access.project_or_404(request.user, "see", project)
        text = request.query_params.get("filter", "")
        size = paging.page_size(request)
        rows = in_location(Job.objects.filter(project=tenant), location).filter(filters.parse(text))
        before = paging.page_token(request, text)
        if before is not None:
            rows = rows.filter(pk__lt=before)
        jobs, more = _page(rows.select_related("project").order_by("-pk"), size)
        documents = _documents(request, jobs)
        return Response(
            {
                "customJobs": documents,
                **({"nextPageToken": paging.token_after(jobs[-1].pk, text)} if more else {}),
            }
        )


class JobView(GoogleView):
    """P/customJobs/{id}: GET, DELETE."""

    def get(self, request: Request, project: str, location: str, job_id: str) -> Response:
        job = _job(request, "see", project, job_id)
        return Response(_documents(request, [job])[0])

    def delete(self, request: Request, project: str, location: str, job_id: str) -> Response:
        job = _job(request, "delete", project, job_id)
        now = timezone.now()
        operation = f"projects/{project}/locations/{location}/operations/{job.pk}"
        with transaction.atomic():
            services.delete(job, person(request).get_username(), now)
        return Response(resources.delete_operation(operation, now))


class CancelView(GoogleView):
    """P/customJobs/{id}:cancel. Asynchronous: the answer only says that the request was accepted."""

    # The body is {} or empty, with any content type. It is not read.
    def post(self, request: Request, project: str, location: str, job_id: str) -> Response:
        job = _job(request, "cancel", project, job_id)
        with transaction.atomic():
            services.cancel(job, person(request).get_username(), timezone.now())
        return Response({})


def warnings(job: Job) -> dict[str, str]:
    """The advice about a job that was accepted, as a header: Vertex's resource has no field for it, and the SDK and
    curl show or ignore headers as they like."""
    texts = [
        one.text for one in output_directories.advice_of(job) if one.kind == WARNING or WITHOUT in one.text
    ]
    if full := log_storage.recent_warning(job.project_id):
        texts.append(full)
    return as_header(texts)


def as_header(texts: Sequence[str]) -> dict[str, str]:
    plain = [text.encode("ascii", "replace").decode()[:MAX_WARNING] for text in texts]
    quoted = [re.sub(r'["\\\x00-\x1f\x7f]', "'", text) for text in plain]
    return {"Warning": ", ".join(f'299 trainyard "{text}"' for text in quoted)} if quoted else {}


def _documents(request: Request, jobs: list[Job]) -> list[dict[str, Any]]:
    uris = resources.web_access_uris(jobs, lambda path: absolute_url(request, path))
    mask = resources.read_mask(request)
    return [resources.masked(resources.custom_job(job, uris.get(job.pk, {})), mask) for job in jobs]


def _job(request: Request, verb: access.Verb, project: str, job_id: str) -> Job:
    """The job. The location in the address is not compared, because the id alone identifies the job."""
    return access.job_of_project_or_404(request.user, verb, project, int(job_id))


def in_location(rows: QuerySet[Row], location: str) -> QuerySet[Row]:
    """The rows of this location; `-` means all."""
    return rows if location == "-" else rows.filter(location_name=location)


def request_id(request: Request) -> str | None:
    given = request.headers.get("Idempotency-Key")
    if given is None:
        return None
    if not REQUEST_ID.fullmatch(given):
        raise BadRequest("Idempotency-Key", "Idempotency-Key must have 1 to 200 printable ASCII characters.")
    return given


def _page(rows: QuerySet[Job], size: int) -> tuple[list[Job], bool]:
    """At most `size` jobs, fewer where their specs are large, but at least one; and whether there are more."""
    jobs: list[Job] = []
    weight = 0
    for job in rows[: size + 1].iterator(chunk_size=20):
        if len(jobs) == size or weight > MAX_PAGE_BYTES:
            return jobs, True
        weight += len(json.dumps(job.spec))
        jobs.append(job)
    return jobs, False
