"""Whose token this is, for the command line client; and its login by a page (console/auth/login/device_logins.py)."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, TypedDict

from django.db import transaction
from django.http import Http404
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.description import ANYBODY, EVERYBODY, Nothing, described, form
from console.api.projects import tokens
from console.api.projects.tokens import TokenDocument
from console.api.request_body import RequestBody
from console.api.views import TrainyardView, person
from console.auth import access
from console.auth import tokens as api_tokens
from console.auth.login import device_logins
from console.client import VERSION
from console.models import ApiToken
from jobs.models import Membership, Project

NOT_STORED = {"Cache-Control": "no-store"}


class RoleInProject(TypedDict):
    name: str
    role: str


class Account(TypedDict):
    """`token`: that of the request; empty where a page asks. `version`: of the console."""

    user: str
    admin: bool
    projects: list[RoleInProject]
    token: TokenDocument | Nothing
    version: str


class DeviceLoginBody(TypedDict, total=False):
    """`client`: how the page names who asks."""

    client: Annotated[str, form(maxLength=device_logins.MAX_CLIENT)]


class DeviceLogin(TypedDict):
    """A person confirms `userCode` at `page`. Ask for the token with `deviceCode`, every `interval` seconds."""

    deviceCode: str
    userCode: str
    page: str
    expiresIn: int
    interval: int


class DeviceTokenBody(TypedDict):
    deviceCode: Annotated[str, form(maxLength=100)]


class DeviceToken(TypedDict):
    state: str
    token: NotRequired[str]


class AccountView(TrainyardView):
    """`GET /api/v1/account`: the person, their projects, and what the token of this request may do."""

    @described("Get whose token this is, and what it may do", Account)
    def get(self, request: Request) -> Response:
        user = person(request)
        rows = access.visible(user, Project.objects.filter(archived_at=None).order_by("name"))
        roles = dict(Membership.objects.filter(user=user).values_list("project", "role"))
        token = tokens.document(request.auth) if isinstance(request.auth, ApiToken) else {}
        return Response(
            {
                "user": user.get_username(),
                "admin": access.is_deployment_admin(user),
                "projects": [{"name": row.name, "role": roles.get(row.pk, "admin")} for row in rows],
                "token": token,
                "version": VERSION,
            }
        )


class OwnTokenView(TrainyardView):
    """`DELETE /api/v1/account/token`: revoke the token of this request, whatever it may do besides."""

    @described("Revoke the token of this request", Nothing, needs=ANYBODY)
    def delete(self, request: Request) -> Response:
        if not isinstance(request.auth, ApiToken):
            raise Http404
        with transaction.atomic():
            api_tokens.revoke(person(request), request.auth.pk, timezone.now())
        return Response({})


class DeviceLoginsView(TrainyardView):
    """`POST /api/v1/deviceLogins {"client"}`: begin a login. Anybody may; it says nothing about anybody."""

    authentication_classes = []
    permission_classes = []

    @described(
        "Begin a login that a person confirms on a page",
        DeviceLogin,
        needs=EVERYBODY,
        body=DeviceLoginBody,
        statuses=(201,),
    )
    def post(self, request: Request) -> Response:
        client = RequestBody(request, DeviceLoginBody).text("client", "", device_logins.MAX_CLIENT)
        address = str(request.META.get("REMOTE_ADDR", ""))
        row, secret = device_logins.begin(" ".join(client.split()), address, timezone.now())
        code = device_logins.shown(row.code)
        told: dict[str, Any] = {
            "deviceCode": secret,
            "userCode": code,
            "page": f"{reverse('device-login')}?{urlencode({'code': code})}",
            "expiresIn": int(device_logins.LIFE.total_seconds()),
            "interval": device_logins.INTERVAL_S,
        }
        return Response(told, status=201, headers=NOT_STORED)


class DeviceTokenView(TrainyardView):
    """`POST /api/v1/deviceLogins:token {"deviceCode"}`: the token, once the person has confirmed the code."""

    authentication_classes = []
    permission_classes = []

    @described(
        "Take the token of a login that was confirmed", DeviceToken, needs=EVERYBODY, body=DeviceTokenBody
    )
    def post(self, request: Request) -> Response:
        secret = RequestBody(request, DeviceTokenBody).text("deviceCode", max_length=100)
        outcome = device_logins.take(secret, timezone.now())
        if outcome.state == device_logins.GONE:
            raise Http404
        token = {"token": outcome.token} if outcome.token else {}
        return Response({"state": outcome.state, **token}, headers=NOT_STORED)
