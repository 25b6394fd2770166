"""The people of a deployment, for its admins. Passwords are never shown: with a link each person sets one."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, NotRequired, TypedDict

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import Http404
from django.urls import reverse
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from agents.infra import refusals
from console.api.description import Nothing, Time, described, form
from console.api.errors import BadRequest
from console.api.request_body import RequestBody
from console.api.times import format_time
from console.api.views import TrainyardView, absolute_url, person, require_confirmed
from console.auth import access, accounts, session_list
from console.auth.login import login_steps
from console.presenters.projects import people as presenter

Document = dict[str, Any]
MAX_NAME, MAX_PASSWORD = 150, 4096


class RoleOfPerson(TypedDict):
    project: str
    role: str


class PersonDocument(TypedDict):
    """`invited`: has not followed the link yet."""

    name: str
    admin: bool
    active: bool
    invited: bool
    secondFactor: bool
    projects: list[RoleOfPerson]
    lastLoginTime: NotRequired[Time]


class People(TypedDict):
    people: list[PersonDocument]


class Invitation(TypedDict):
    """A link with which the person sets a password, once."""

    url: str
    expireTime: Time


class AddedPerson(PersonDocument):
    invitation: NotRequired[Invitation]


class NewPerson(TypedDict):
    """Without a password, the answer has a link with which the person sets one. `member`: of the project `default`."""

    name: Annotated[str, form(maxLength=MAX_NAME)]
    password: NotRequired[Annotated[str, form(maxLength=MAX_PASSWORD)]]
    admin: NotRequired[bool]
    member: NotRequired[bool]


class PersonChange(TypedDict, total=False):
    """A person who is not active cannot log in, and has no tokens."""

    admin: bool
    active: bool


class EndLoginsBody(TypedDict, total=False):
    """`tokens`: revoke all tokens too, which is usual."""

    tokens: bool


class EndedLogins(TypedDict):
    """How many sessions were ended, how many tokens were revoked."""

    sessions: int
    tokens: int


class PeopleView(TrainyardView):
    """`GET /api/v1/people`; `POST {"name", "admin", "member", "password"}`.

    Without a password, the answer to the POST has a link with which the person sets one.
    """

    @described("List people", People, needs="manage")
    def get(self, request: Request) -> Response:
        access.require(request.user, "manage", User)
        return Response({"people": [document(row) for row in presenter.people()]})

    @described("Add a person", AddedPerson, needs="manage", body=NewPerson)
    def post(self, request: Request) -> Response:
        access.require(request.user, "manage", User)
        body = RequestBody(request, NewPerson)
        name, password = body.text("name", "", MAX_NAME), body.text("password", "", MAX_PASSWORD)
        admin, member = body.boolean("admin"), body.boolean("member", True)
        actor, now = person(request).username, timezone.now()
        if admin:
            require_confirmed(request, "give admin rights")
        try:
            with transaction.atomic():
                user = accounts.add(
                    name, admin=admin, actor=actor, now=now, password=password or None, member=member
                )
                token = "" if password else accounts.invite(user, actor, now)
        except ValidationError as problem:
            raise refused(problem) from problem
        answer = document(one(user))
        return uncached({**answer, **({"invitation": invitation(request, token)} if token else {})})


class PersonView(TrainyardView):
    """`GET /api/v1/people/<name>`; `PATCH {"admin": false}`, `{"active": false}`, which revokes all tokens; DELETE."""

    @described("Get a person", PersonDocument, needs="manage")
    def get(self, request: Request, user: str) -> Response:
        return Response(document(one(found(request, user))))

    @described("Make a person an admin, or disable one", PersonDocument, needs="manage", body=PersonChange)
    def patch(self, request: Request, user: str) -> Response:
        row = found(request, user)
        body = RequestBody(request, PersonChange)
        admin, active = body.boolean("admin", row.is_superuser), body.boolean("active", row.is_active)
        actor, now = person(request).username, timezone.now()
        if admin and not row.is_superuser:
            require_confirmed(request, "give admin rights")
        try:
            with transaction.atomic():
                accounts.set_admin(row, admin, actor, now)
                row.refresh_from_db()
                if active != row.is_active:
                    (accounts.enable if active else accounts.disable)(row, actor, now)
        except refusals.Refused as problem:
            raise BadRequest("active" if "active" in body else "admin", problem.message) from problem
        row.refresh_from_db()
        return Response(document(one(row)))

    @described("Delete a person", Nothing, needs="manage")
    def delete(self, request: Request, user: str) -> Response:
        row = found(request, user)
        try:
            with transaction.atomic():
                accounts.delete(row, person(request).username, timezone.now())
        except refusals.Refused as problem:
            raise BadRequest("active", problem.message) from problem
        return Response({})


class InviteView(TrainyardView):
    """`POST /api/v1/people/<name>:invite`: a one-time link to set a password. An older link stops working."""

    @described(
        "Make a link with which a person sets a password",
        Invitation,
        needs="manage",
        body=Nothing,
        confirmed="make login links",
    )
    def post(self, request: Request, user: str) -> Response:
        row = found(request, user)
        RequestBody(request)
        if not row.is_active:
            raise BadRequest("active", f"{row.username} is disabled. Enable them first.")
        require_confirmed(request, "make login links")
        with transaction.atomic():
            token = accounts.invite(row, person(request).username, timezone.now())
        return uncached(invitation(request, token))


class SecondFactorView(TrainyardView):
    """`POST /api/v1/people/<name>:resetSecondFactor`: for a person who has lost the phone and the recovery codes."""

    @described(
        "Take the second factor of a person away",
        PersonDocument,
        needs="manage",
        body=Nothing,
        confirmed="take a second factor away",
    )
    def post(self, request: Request, user: str) -> Response:
        row = found(request, user)
        RequestBody(request)
        require_confirmed(request, "take a second factor away")
        login_steps.reset(row, person(request).username, timezone.now())
        return Response(document(one(row)))


class EndSessionsView(TrainyardView):
    """`POST /api/v1/people/<name>:endSessions {"tokens": true}`: log a person out everywhere."""

    @described("Log a person out everywhere", EndedLogins, needs="manage", body=EndLoginsBody)
    def post(self, request: Request, user: str) -> Response:
        row = found(request, user)
        with_tokens = RequestBody(request, EndLoginsBody).boolean("tokens", True)
        with transaction.atomic():
            ended, revoked = session_list.end_everywhere(
                row, person(request).username, timezone.now(), with_tokens=with_tokens
            )
        return Response({"sessions": ended, "tokens": revoked})


def found(request: Request, name: str) -> User:
    access.require(request.user, "manage", User)
    row = User.objects.filter(username=name).first()
    if row is None:
        raise Http404
    return row


def one(user: User) -> presenter.PersonRow:
    return presenter.people(User.objects.filter(pk=user.pk))[0]


def document(row: presenter.PersonRow) -> Document:
    return {
        "name": row.name,
        "admin": row.admin,
        "active": row.active,
        "invited": row.invited,
        "secondFactor": row.has_second_factor,
        "projects": [{"project": project, "role": role} for project, role in row.roles],
        **({"lastLoginTime": format_time(row.last_login)} if row.last_login else {}),
    }


def invitation(request: Request, token: str) -> Document:
    until: timedelta = accounts.INVITED_FOR
    path = reverse("invited", args=[token])
    return {"url": absolute_url(request, path), "expireTime": format_time(timezone.now() + until)}


def uncached(answer: Document) -> Response:
    """A response that no proxy may store, because anybody with the link can act as that person."""
    return Response(answer, headers={"Cache-Control": "no-store"})


def refused(problem: ValidationError) -> BadRequest:
    """Errors about the name have a field. Errors about a password have none."""
    if hasattr(problem, "error_dict"):
        return BadRequest("name", f"name: {' '.join(problem.messages)}")
    return BadRequest("password", " ".join(problem.messages))
