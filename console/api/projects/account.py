"""Whose token this is, for the command line client; and its login by a page (console/auth/login/device_logins.py)."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.http import Http404
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.projects import tokens
from console.api.request_body import RequestBody
from console.api.views import TrainyardView, person
from console.auth import access
from console.auth import tokens as api_tokens
from console.auth.login import device_logins
from console.client import VERSION
from console.models import ApiToken
from jobs.models import Membership, Project

NOT_STORED = {"Cache-Control": "no-store"}


class AccountView(TrainyardView):
    """`GET /api/v1/account`: the person, their projects, and what the token of this request may do."""

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

    def post(self, request: Request) -> Response:
        client = RequestBody(request, "client").text("client", "", device_logins.MAX_CLIENT)
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

    def post(self, request: Request) -> Response:
        secret = RequestBody(request, "deviceCode").text("deviceCode", max_length=100)
        outcome = device_logins.take(secret, timezone.now())
        if outcome.state == device_logins.GONE:
            raise Http404
        token = {"token": outcome.token} if outcome.token else {}
        return Response({"state": outcome.state, **token}, headers=NOT_STORED)
