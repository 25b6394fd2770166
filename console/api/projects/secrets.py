"""Stored secrets of projects and of people. A value can be written, and nobody can read it back.

Jobs refer to them in `env`: `{"name": "HF_TOKEN", "valueFrom": {"secret": "NAME"}}`.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from django.db import transaction
from django.http import Http404
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.description import ACCOUNT, Nothing, Time, described
from console.api.request_body import RequestBody
from console.api.times import format_time
from console.api.views import TrainyardView, account, person
from console.auth import access
from jobs.models import Secret
from jobs.secrets import store
from jobs.secrets.store import Owner

Document = dict[str, Any]


class SecretDocument(TypedDict):
    """Never with its value."""

    name: str
    createTime: Time
    updateTime: Time
    updatedBy: str
    lastUseTime: NotRequired[Time]


class Secrets(TypedDict):
    secrets: list[SecretDocument]


class SecretBody(TypedDict):
    value: str


class SecretsView(TrainyardView):
    """GET lists the names: who set which, and when."""

    @described("List stored secrets by name, never with a value", Secrets, needs="submit", own=ACCOUNT)
    def get(self, request: Request, **names: str) -> Response:
        return Response({"secrets": [document(row) for row in store.of(self.owner(request, **names))]})

    def owner(self, request: Request, **names: str) -> Owner:
        """Whose secrets these are. Checks that the person may use them."""
        raise NotImplementedError


class SecretView(TrainyardView):
    """PUT `{"value": "..."}` sets a secret, DELETE deletes it. Jobs that were submitted with it keep what they got."""

    @described(
        "Set a stored secret",
        SecretDocument,
        needs="manage_secrets",
        own=ACCOUNT,
        body=SecretBody,
        statuses=(200, 201),
    )
    def put(self, request: Request, name: str, **names: str) -> Response:
        owner = self.owner(request, **names)
        value = RequestBody(request, SecretBody).get("value")
        with transaction.atomic():
            row, new = store.put(owner, name, value, person(request).username, timezone.now())
        return Response(document(row), status=201 if new else 200)

    @described("Delete a stored secret", Nothing, needs="manage_secrets", own=ACCOUNT)
    def delete(self, request: Request, name: str, **names: str) -> Response:
        owner = self.owner(request, **names)
        with transaction.atomic():
            if not store.remove(owner, name, person(request).username, timezone.now()):
                raise Http404
        return Response({})

    def owner(self, request: Request, **names: str) -> Owner:
        """Whose secret this is. Checks that the person may set it."""
        raise NotImplementedError


class ProjectSecretsView(SecretsView):
    """`GET /api/v1/projects/<p>/secrets`: for those who submit jobs there."""

    def owner(self, request: Request, **names: str) -> Owner:
        return access.project_or_404(request.user, "submit", names["project"])


class ProjectSecretView(SecretView):
    """`PUT, DELETE /api/v1/projects/<p>/secrets/<name>`: for admins of the project."""

    def owner(self, request: Request, **names: str) -> Owner:
        return access.project_or_404(request.user, "manage_secrets", names["project"])


class OwnSecretsView(SecretsView):
    """`GET /api/v1/secrets`: the person's own."""

    def owner(self, request: Request, **names: str) -> Owner:
        return account(request)


class OwnSecretView(SecretView):
    """`PUT, DELETE /api/v1/secrets/<name>`: the person's own, which nobody else can use."""

    def owner(self, request: Request, **names: str) -> Owner:
        return account(request)


def document(row: Secret) -> Document:
    return {
        "name": row.name,
        "createTime": format_time(row.made_at),
        "updateTime": format_time(row.changed_at),
        "updatedBy": row.changed_by,
        **({"lastUseTime": format_time(row.used_at)} if row.used_at else {}),
    }
