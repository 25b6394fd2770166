"""Notification targets of a person or of a project, and a project's idle rule."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, TypedDict

from django.contrib.auth.models import User
from django.db import transaction
from django.http import Http404
from django.shortcuts import get_object_or_404
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.description import ACCOUNT, Id, Nothing, Time, described, form, one_of
from console.api.errors import BadRequest
from console.api.request_body import RequestBody
from console.api.times import format_time
from console.api.views import TrainyardView, account, person
from console.auth import access, preferences
from console.forms.notifications import Events, NewTarget
from jobs import idle_rule
from jobs.models import NotificationTarget, Project
from jobs.models.notifications import Way
from jobs.notifications import create, delivery, email_opt_in, targets
from jobs.rules.notifications import EVENTS, USUAL

Document = dict[str, Any]
# What a field is called here, by its name in the form.
NAMES = {"wait_hours": "waitHours"}


class TargetDocument(TypedDict):
    """`address`: the part of it that is shown after it was added. `proved`: who reads there has agreed."""

    id: Id
    project: str | None
    way: Annotated[str, one_of(Way.values)]
    address: str
    events: list[str]
    waitHours: float
    createTime: Time
    createdBy: str
    proved: bool
    provedBy: str


class AddedTarget(TargetDocument):
    """`secret`: that of a webhook, shown here and never again."""

    secret: NotRequired[str]


class Targets(TypedDict):
    notifications: list[TargetDocument]


class NewTargetBody(TypedDict):
    way: Annotated[str, one_of(Way.values)]
    address: str
    events: NotRequired[list[Annotated[str, one_of(EVENTS)]]]
    waitHours: NotRequired[float]


class TargetChange(TypedDict, total=False):
    events: list[Annotated[str, one_of(EVENTS)]]
    waitHours: float


class IdleRule(TypedDict):
    """`minutes`: null for no rule. `stops`: idle jobs are stopped, and not only told of."""

    minutes: int | None
    stops: bool


class IdleRuleBody(TypedDict, total=False):
    minutes: Annotated[int, form(minimum=idle_rule.MIN_MINUTES, maximum=idle_rule.MAX_MINUTES)] | None
    stops: bool


class TargetsView(TrainyardView):
    """`GET, POST /api/v1/notifications` (one's own) and `/api/v1/projects/<p>/notifications`.

    `{"way": "mail" | "slack" | "hook", "address", "events": [...], "waitHours"}`. The answer to the POST of a hook is
    the only place where its secret is shown.
    """

    @described("List notification targets", Targets, needs="manage", own=ACCOUNT)
    def get(self, request: Request, project: str | None = None) -> Response:
        rows = NotificationTarget.objects.select_related("project")
        owner = self.owner(request, project)
        of = rows.filter(project=owner) if isinstance(owner, Project) else rows.filter(user=owner)
        return Response({"notifications": [document(row) for row in of]})

    @described("Add a notification target", AddedTarget, needs="manage", own=ACCOUNT, body=NewTargetBody)
    def post(self, request: Request, project: str | None = None) -> Response:
        owner = self.owner(request, project)
        body = read(request, NewTargetBody)
        typed = checked(
            NewTarget(
                {
                    "way": body.get("way", ""),
                    "address": body.get("address", ""),
                    "events": body.get("events", list(USUAL)),
                    "wait_hours": body.get("waitHours", 4),
                }
            )
        )
        actor, now = person(request).username, timezone.now()
        language = preferences.of(person(request)).language
        with transaction.atomic():
            row, secret = targets.add(
                owner,
                typed["way"],
                typed["address"],
                typed["events"],
                typed["wait_hours"],
                actor,
                now,
                language,
            )
            if row.confirmed_at is None:
                email_opt_in.send_letter(row, request.build_absolute_uri("/"), actor, now)
        delivery.send_due(now)
        answer = {**document(row), **({"secret": secret} if secret else {})}
        return Response(answer, headers={"Cache-Control": "no-store"})

    def owner(self, request: Request, project: str | None) -> User | Project:
        return account(request) if project is None else access.project_or_404(request.user, "manage", project)


class TargetView(TrainyardView):
    """`GET`, `PATCH {"events", "waitHours"}`, `DELETE /api/v1/notifications/<id>`."""

    @described("Get a notification target", TargetDocument, needs="manage", own=ACCOUNT)
    def get(self, request: Request, target: str) -> Response:
        return Response(document(target_of(request, target)))

    @described(
        "Change what is told at a notification target",
        TargetDocument,
        needs="manage",
        own=ACCOUNT,
        body=TargetChange,
    )
    def patch(self, request: Request, target: str) -> Response:
        row = target_of(request, target)
        body = read(request, TargetChange)
        kept = {
            "events": body.get("events", row.events),
            "wait_hours": body.get("waitHours", row.wait_hours),
        }
        typed = checked(Events(kept))
        targets.change(row, typed["events"], typed["wait_hours"], person(request).username, timezone.now())
        return Response(document(row))

    @described("Remove a notification target", Nothing, needs="manage", own=ACCOUNT)
    def delete(self, request: Request, target: str) -> Response:
        targets.remove(target_of(request, target), person(request).username, timezone.now())
        return Response({})


class TestView(TrainyardView):
    """`POST /api/v1/notifications/<id>:test`: send a test notification."""

    @described("Send a test notification", Nothing, needs="manage", own=ACCOUNT, body=Nothing)
    def post(self, request: Request, target: str) -> Response:
        row = target_of(request, target)
        RequestBody(request)
        create.create_test(row, person(request).username, timezone.now())
        delivery.send_due(timezone.now())
        return Response({})


class AskView(TrainyardView):
    """`POST /api/v1/notifications/<id>:ask`: send the link again to an e-mail address that is not confirmed."""

    @described(
        "Send the link for an e-mail address again", TargetDocument, needs="manage", own=ACCOUNT, body=Nothing
    )
    def post(self, request: Request, target: str) -> Response:
        row = target_of(request, target)
        RequestBody(request)
        email_opt_in.send_letter(
            row, request.build_absolute_uri("/"), person(request).username, timezone.now()
        )
        delivery.send_due(timezone.now())
        return Response(document(row))


class VouchView(TrainyardView):
    """`POST /api/v1/notifications/<id>:vouch`: an admin of the deployment confirms the address."""

    @described(
        "Confirm an e-mail address in place of its reader", TargetDocument, needs="manage", body=Nothing
    )
    def post(self, request: Request, target: str) -> Response:
        access.require(request.user, "manage", User)
        row = get_object_or_404(NotificationTarget.objects.select_related("project", "user"), pk=int(target))
        RequestBody(request)
        with transaction.atomic():
            email_opt_in.vouch(row, person(request).username, timezone.now())
        row.refresh_from_db()
        return Response(document(row))


class IdleRuleView(TrainyardView):
    """`GET, PUT /api/v1/projects/<p>/idleRule`: `{"minutes": 30, "stops": true}`; no minutes: no rule."""

    @described("Get the idle rule of a project", IdleRule, needs="manage")
    def get(self, request: Request, project: str) -> Response:
        row = access.project_or_404(request.user, "manage", project)
        return Response({"minutes": row.idle_minutes, "stops": row.idle_stops})

    @described("Set the idle rule of a project", IdleRule, needs="manage", body=IdleRuleBody)
    def put(self, request: Request, project: str) -> Response:
        row = access.project_or_404(request.user, "manage", project)
        body = RequestBody(request, IdleRuleBody)
        minutes = body.get("minutes")
        if minutes is not None and (isinstance(minutes, bool) or not isinstance(minutes, int)):
            raise BadRequest("minutes", "minutes must be a whole number, or null for no rule.")
        if minutes is not None and not idle_rule.MIN_MINUTES <= minutes <= idle_rule.MAX_MINUTES:
            raise BadRequest(
                "minutes", f"minutes must be from {idle_rule.MIN_MINUTES} to {idle_rule.MAX_MINUTES}."
            )
        stops = body.boolean("stops")
        idle_rule.set_rule(row, minutes, stops, person(request).username, timezone.now())
        row.refresh_from_db()
        return Response({"minutes": row.idle_minutes, "stops": row.idle_stops})


def target_of(request: Request, target: str) -> NotificationTarget:
    """The target. Raises Http404 when it belongs to another person."""
    row = NotificationTarget.objects.select_related("project").filter(pk=int(target)).first()
    if row is None or (row.project is None and row.user_id != person(request).pk):
        raise Http404
    if row.project is None:
        account(request)
    else:
        access.get_or_404(request.user, "manage", Project.objects.all(), pk=row.project.pk)
    return row


def document(row: NotificationTarget) -> Document:
    """`address` is the part of the address that is shown after the target was added."""
    return {
        "id": str(row.pk),
        "project": row.project.name if row.project else None,
        "way": row.way,
        "address": row.shown,
        "events": row.events,
        "waitHours": row.wait_hours,
        "createTime": format_time(row.created_at),
        "createdBy": row.created_by,
        "proved": row.confirmed_at is not None,
        "provedBy": row.confirmed_by,
    }


def read(request: Request, fields: type) -> RequestBody:
    """The body, with the type of each known field checked. The form checks the values."""
    body = RequestBody(request, fields)
    for name, kinds, expected in (
        ("way", str, f"one of {', '.join(Way.values)}"),
        ("address", str, "a text"),
        ("events", list, "a list of events"),
        ("waitHours", (int, float), "a number"),
    ):
        value = body.get(name)
        if name in body and (isinstance(value, bool) or not isinstance(value, kinds)):
            raise BadRequest(name, f"{name} must be {expected}.")
    return body


def checked(form: Events) -> Document:
    """Check the values with the form of the pages, which decides what a valid address or event is."""
    if not form.is_valid():
        field, problems = next(iter(form.errors.items()))
        name = NAMES.get(field, field)
        raise BadRequest(name, f"{name}: {' '.join(str(problem) for problem in problems)}")
    return form.cleaned_data
