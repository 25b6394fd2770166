"""Templates of jobs, of projects and of people: `{"displayName": …, "jobSpec": {…}}` under a name."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from django.db import transaction
from django.http import Http404
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from agents.infra.refusals import Refused
from console.api.description import ACCOUNT, Nothing, Time, described
from console.api.request_body import RequestBody
from console.api.times import format_time
from console.api.views import TrainyardView, account, person
from console.auth import access
from jobs.models import JobTemplate, Project
from jobs.models.first_rows import DEFAULT
from jobs.projects import job_templates, locations
from jobs.projects.job_templates import Owner
from jobs.scheduling import machine_types

Document = dict[str, Any]


class TemplateDocument(TypedDict):
    """`customJob`: a document as Vertex AI has it (docs/vertex.md)."""

    name: str
    location: str
    customJob: dict[str, Any]
    createTime: Time
    updateTime: Time
    updatedBy: str


class Templates(TypedDict):
    templates: list[TemplateDocument]


class TemplateBody(TypedDict):
    location: NotRequired[str]
    customJob: dict[str, Any]


class NewTemplate(TemplateBody):
    name: str


class _Owned(TrainyardView):
    """Templates of a project are for those who submit jobs there; a person's own are for that person."""

    def owner(self, request: Request, **names: str) -> Owner:
        if "project" in names:
            return access.project_or_404(request.user, "submit", names["project"])
        return account(request)

    def saved(self, request: Request, name: str, body: RequestBody, **names: str) -> Response:
        owner = self.owner(request, **names)
        location = str(body.get("location") or DEFAULT)
        # Before the document is read: a refusal of the document names what the hosts of the location have.
        _check_location(owner, request, location)
        asked = machine_types.read(body.get("customJob"), location)[0]
        with transaction.atomic():
            row, new = job_templates.put(
                owner, name, asked, location, person(request).username, timezone.now()
            )
        return Response(document(row), status=201 if new else 200)


class TemplatesView(_Owned):
    """GET lists them. POST `{"name": …, "location": …, "customJob": {…}}` saves one."""

    @described("List templates of jobs", Templates, needs="submit", own=ACCOUNT)
    def get(self, request: Request, **names: str) -> Response:
        return Response(
            {"templates": [document(row) for row in job_templates.of(self.owner(request, **names))]}
        )

    @described(
        "Save a template of jobs",
        TemplateDocument,
        needs="submit",
        own=ACCOUNT,
        body=NewTemplate,
        statuses=(200, 201),
    )
    def post(self, request: Request, **names: str) -> Response:
        body = RequestBody(request, NewTemplate)
        return self.saved(request, str(body.get("name") or ""), body, **names)


class TemplateView(_Owned):
    """GET, PUT and DELETE of one."""

    @described("Get a template of jobs", TemplateDocument, needs="submit", own=ACCOUNT)
    def get(self, request: Request, name: str, **names: str) -> Response:
        row = job_templates.of(self.owner(request, **names)).filter(name=name).first()
        if row is None:
            raise Http404
        return Response(document(row))

    @described(
        "Save a template of jobs under a name",
        TemplateDocument,
        needs="submit",
        own=ACCOUNT,
        body=TemplateBody,
        statuses=(200, 201),
    )
    def put(self, request: Request, name: str, **names: str) -> Response:
        return self.saved(request, name, RequestBody(request, TemplateBody), **names)

    @described("Delete a template of jobs", Nothing, needs="submit", own=ACCOUNT)
    def delete(self, request: Request, name: str, **names: str) -> Response:
        owner = self.owner(request, **names)
        with transaction.atomic():
            if not job_templates.remove(owner, name, person(request).username, timezone.now()):
                raise Http404
        return Response({})


def _check_location(owner: Owner, request: Request, location: str) -> None:
    """Raises Refused for a location that serves no project in question."""
    mine = [owner] if isinstance(owner, Project) else access.projects_allowing(request.user, "submit")
    if not mine:
        raise Refused("location", "You may submit jobs to no project, so you can keep no templates.")
    bindings = locations.read_bindings()
    named = locations.resolved(location, locations.names())
    if not bindings.serves_any(named, [project.pk for project in mine]):
        locations.check_serves(mine[0], location)


def document(row: JobTemplate) -> Document:
    return {
        "name": row.name,
        "location": row.location_name,
        "customJob": row.document,
        "createTime": format_time(row.made_at),
        "updateTime": format_time(row.changed_at),
        "updatedBy": row.changed_by,
    }
