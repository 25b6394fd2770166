"""Projects and their members."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, TypedDict

from django.contrib.auth.models import User
from django.db import transaction
from django.http import Http404
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.description import Id, Nothing, Time, described, form, one_of
from console.api.errors import BadRequest
from console.api.request_body import RequestBody
from console.api.times import format_time
from console.api.views import TrainyardView, person, require_confirmed
from console.auth import access
from jobs.models import Membership, Project, Role
from jobs.projects import members, projects
from jobs.rules.scheduling.order import PRIORITIES

Document = dict[str, Any]


class ProjectDocument(TypedDict):
    """`role`: yours; null for an admin of the deployment who is no member. `recordShells`: null for the default."""

    name: str
    number: Id
    title: str
    role: str | None
    weight: float
    highestPriority: str
    recordShells: bool | None
    archived: bool
    createTime: Time


class Projects(TypedDict):
    projects: list[ProjectDocument]


class NewProject(TypedDict):
    name: str
    title: NotRequired[str]


class ProjectChange(TypedDict, total=False):
    """What is left out stays. `archived`: true archives the project, false takes it back."""

    name: str
    title: str
    weight: Annotated[float, form(minimum=projects.MIN_WEIGHT, maximum=projects.MAX_WEIGHT)]
    highestPriority: Annotated[str, one_of(PRIORITIES)]
    recordShells: bool | None
    archived: bool | None


class MemberOfProject(TypedDict):
    user: str
    role: str


class Members(TypedDict):
    members: list[MemberOfProject]


class MemberBody(TypedDict):
    role: Annotated[str, one_of(Role)]


class ProjectsView(TrainyardView):
    """`GET, POST /api/v1/projects`."""

    @described("List your projects", Projects)
    def get(self, request: Request) -> Response:
        rows = access.visible(request.user, Project.objects.order_by("name"))
        roles = dict(Membership.objects.filter(user=person(request)).values_list("project", "role"))
        return Response({"projects": [document(row, roles.get(row.pk)) for row in rows]})

    @described("Make a project", ProjectDocument, needs="configure", body=NewProject)
    def post(self, request: Request) -> Response:
        access.require(request.user, "configure", Project)
        body = RequestBody(request, NewProject)
        name, title = body.text("name"), body.text("title", "")
        with transaction.atomic():
            row = projects.create(name, title, person(request).username, timezone.now())
        return Response(document(row, None))


class ProjectView(TrainyardView):
    """`GET, PATCH /api/v1/projects/<p>`; `{"archived": true}` archives, false takes it back."""

    @described("Get a project", ProjectDocument, needs="see")
    def get(self, request: Request, project: str) -> Response:
        row = access.project_or_404(request.user, "see", project)
        return Response(document(row, role_of(person(request), row)))

    @described(
        "Change a project, archive it or take it back", ProjectDocument, needs="configure", body=ProjectChange
    )
    def patch(self, request: Request, project: str) -> Response:
        row = access.project_or_404(request.user, "configure", project)
        actor, now = person(request).username, timezone.now()
        columns: Document = {}
        body = RequestBody(request, ProjectChange)
        for name in ("name", "title"):
            if name in body:
                columns[name] = body.text(name)
        if "weight" in body:
            possible = f"from {projects.MIN_WEIGHT} to {projects.MAX_WEIGHT}; 1 is usual"
            columns["weight"] = body.number("weight", possible)
        if "highestPriority" in body:
            columns["highest_priority"] = body.text("highestPriority")
            if columns["highest_priority"] not in PRIORITIES:
                raise BadRequest(
                    "highestPriority", f"highestPriority must be one of {', '.join(PRIORITIES)}."
                )
        if "recordShells" in body:
            columns["record_shells"] = body.get("recordShells")
            if not isinstance(columns["record_shells"], bool | None):
                raise BadRequest("recordShells", "recordShells must be true, false, or null for the default.")
        archived = body.get("archived")
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

    @described("List the members of a project", Members, needs="see")
    def get(self, request: Request, project: str) -> Response:
        row = access.project_or_404(request.user, "see", project)
        rows = Membership.objects.filter(project=row).select_related("user").order_by("user__username")
        return Response({"members": [{"user": one.user.username, "role": one.role} for one in rows]})


class MemberView(TrainyardView):
    """`PUT /api/v1/projects/<p>/members/<user>` with `{"role": "viewer"}`; DELETE takes the person out."""

    @described(
        "Make a person a member, or change the role", MemberOfProject, needs="manage_members", body=MemberBody
    )
    def put(self, request: Request, project: str, user: str) -> Response:
        row = access.project_or_404(request.user, "manage_members", project)
        role = RequestBody(request, MemberBody).text("role")
        member = members.person_named(user)
        if members.makes_admin(row, member, role):
            require_confirmed(request, "give admin rights")
        with transaction.atomic():
            members.set_role(row, member, role, person(request).username, timezone.now())
        return Response({"user": user, "role": role})

    @described("Take a person out of a project", Nothing, needs="manage_members")
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
        "recordShells": project.record_shells,
        "archived": project.archived_at is not None,
        "createTime": format_time(project.created_at),
    }


def role_of(user: User, project: Project) -> str | None:
    return Membership.objects.filter(user=user, project=project).values_list("role", flat=True).first()


def member_or_404(project: Project, name: str) -> User:
    row = Membership.objects.select_related("user").filter(project=project, user__username=name).first()
    if row is None:
        raise Http404
    return row.user
