"""Projects and their members."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.http import Http404
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.errors import BadRequest
from console.api.resources import stamp
from console.api.views import TrainyardView, person
from console.auth import access
from jobs.models import Membership, Project
from jobs.projects import members, projects
from jobs.rules.scheduling.order import PRIORITIES

Document = dict[str, Any]


class ProjectsView(TrainyardView):
    """`GET, POST /api/v1/projects`."""

    def get(self, request: Request) -> Response:
        rows = access.visible(request.user, Project.objects.order_by("name"))
        roles = dict(Membership.objects.filter(user=person(request)).values_list("project", "role"))
        return Response({"projects": [document(row, roles.get(row.pk)) for row in rows]})

    def post(self, request: Request) -> Response:
        access.require(request.user, "configure", Project)
        only(request, "name", "title")
        name, title = text(request, "name"), text(request, "title", "")
        with transaction.atomic():
            row = projects.create(name, title, person(request).username, timezone.now())
        return Response(document(row, None))


class ProjectView(TrainyardView):
    """`GET, PATCH /api/v1/projects/<p>`; `{"archived": true}` archives, false takes it back."""

    def get(self, request: Request, project: str) -> Response:
        row = access.project_or_404(request.user, "see", project)
        return Response(document(row, role_of(person(request), row)))

    def patch(self, request: Request, project: str) -> Response:
        row = access.project_or_404(request.user, "configure", project)
        actor, now = person(request).username, timezone.now()
        columns: Document = {}
        only(request, "name", "title", "weight", "highestPriority", "archived")
        given = body(request)
        for name in given.keys() & {"name", "title"}:
            columns[name] = text(request, name)
        if "weight" in given:
            columns["weight"] = number(
                given["weight"],
                "weight",
                f"from {projects.MIN_WEIGHT} to {projects.MAX_WEIGHT}; 1 is usual",
            )
        if "highestPriority" in given:
            columns["highest_priority"] = text(request, "highestPriority")
            if columns["highest_priority"] not in PRIORITIES:
                raise BadRequest(
                    "highestPriority", f"highestPriority must be one of {', '.join(PRIORITIES)}."
                )
        archived = given.get("archived")
        if archived not in (None, True, False):
            raise BadRequest("archived", "archived must be true or false.")
        with transaction.atomic():
            row = projects.change(row, actor, now, **columns)
            if archived is not None:
                (projects.archive if archived else projects.restore)(row, actor, now)
        row.refresh_from_db()
        return Response(document(row, role_of(person(request), row)))


class MembersView(TrainyardView):
    """`GET /api/v1/projects/<p>/members`."""

    def get(self, request: Request, project: str) -> Response:
        row = access.project_or_404(request.user, "see", project)
        rows = Membership.objects.filter(project=row).select_related("user").order_by("user__username")
        return Response({"members": [{"user": one.user.username, "role": one.role} for one in rows]})


class MemberView(TrainyardView):
    """`PUT /api/v1/projects/<p>/members/<user>` with `{"role": "viewer"}`; DELETE takes the person out."""

    def put(self, request: Request, project: str, user: str) -> Response:
        row = access.project_or_404(request.user, "manage_members", project)
        only(request, "role")
        role = text(request, "role")
        with transaction.atomic():
            members.set_role(row, members.person_named(user), role, person(request).username, timezone.now())
        return Response({"user": user, "role": role})

    def delete(self, request: Request, project: str, user: str) -> Response:
        row = access.project_or_404(request.user, "manage_members", project)
        with transaction.atomic():
            members.remove(row, member_or_404(row, user), person(request).username, timezone.now())
        return Response({})


def document(project: Project, role: str | None) -> Document:
    return {
        "name": project.name,
        "number": str(project.pk),
        "title": project.title,
        "role": role,
        "weight": project.weight,
        "highestPriority": project.highest_priority,
        "archived": project.archived_at is not None,
        "createTime": stamp(project.created_at),
    }


def role_of(user: User, project: Project) -> str | None:
    return Membership.objects.filter(user=user, project=project).values_list("role", flat=True).first()


def member_or_404(project: Project, name: str) -> User:
    row = Membership.objects.select_related("user").filter(project=project, user__username=name).first()
    if row is None:
        raise Http404
    return row.user


def body(request: Request) -> Document:
    if not isinstance(request.data, dict):
        raise BadRequest("", "The body must be a JSON object.")
    return dict(request.data)


def only(request: Request, *names: str) -> None:
    """What is sent and not read would be lost without a word."""
    unknown = sorted(str(name)[:60] for name in body(request).keys() - set(names))
    if unknown:
        raise BadRequest(unknown[0], f"{unknown[0]} cannot be set here; {', '.join(names)} can.")


def text(request: Request, field: str, default: str | None = None) -> str:
    value = body(request).get(field, default)
    if not isinstance(value, str):
        raise BadRequest(field, f"{field} must be a string.")
    return value


def number(value: object, field: str, which: str) -> float:
    """`which` numbers would do; whether it is one of them is for others to say."""
    refused = BadRequest(field, f"{field} must be a number {which}.")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refused
    try:
        return float(value)
    except OverflowError:
        raise refused from None
