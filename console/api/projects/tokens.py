"""A person's own API tokens. The answer that makes a token is the only one that shows it."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, TypedDict

from django.contrib.auth.models import User
from django.db import transaction
from django.http import Http404
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.description import ACCOUNT, Id, Nothing, Time, described, form, one_of
from console.api.errors import BadRequest
from console.api.request_body import RequestBody
from console.api.times import format_time
from console.api.views import TrainyardView, account, require_confirmed
from console.auth import access, tokens
from console.auth.scopes import Grant, Scope
from console.models import ApiToken

Document = dict[str, Any]
DAYS = f"from 1 to {tokens.MAX_DAYS}"


class TokenDocument(TypedDict):
    """`elevated`: may do what a person must give the password for. `project`: limited to this one."""

    id: Id
    name: str
    createTime: Time
    expireTime: Time
    elevated: bool
    scope: Annotated[str, one_of(Scope)]
    project: NotRequired[str]
    lastUseTime: NotRequired[Time]


class NewToken(TokenDocument):
    """`token` is shown here and never again."""

    token: str


class Tokens(TypedDict):
    tokens: list[TokenDocument]


class TokenBody(TypedDict, total=False):
    name: Annotated[str, form(maxLength=tokens.MAX_NAME)]
    days: Annotated[float, form(minimum=1, maximum=tokens.MAX_DAYS)]
    elevated: bool
    scope: Annotated[str, one_of(Scope)]
    project: str


class TokensView(TrainyardView):
    """`GET /api/v1/tokens`; `POST {"name", "days", "elevated", "scope", "project"}`."""

    @described("List your API tokens", Tokens, needs=ACCOUNT)
    def get(self, request: Request) -> Response:
        rows = ApiToken.objects.filter(user=account(request), revoked_at=None).select_related("project")
        return Response({"tokens": [document(row) for row in rows]})

    @described("Make an API token", NewToken, needs=ACCOUNT, body=TokenBody, confirmed="make tokens")
    def post(self, request: Request) -> Response:
        user = account(request)
        body = RequestBody(request, TokenBody)
        days = body.number("days", DAYS) if "days" in body else tokens.DEFAULT_DAYS
        name, elevated = body.text("name", "", tokens.MAX_NAME), body.boolean("elevated")
        grant = granted(user, body)
        require_confirmed(request, "make tokens")
        # A token that leaked cannot prolong its own life.
        until = request.auth.expires_at if isinstance(request.auth, ApiToken) else None
        with transaction.atomic():
            row, token = tokens.create(
                user, name, timezone.now(), days=days, elevated=elevated, until=until, grant=grant
            )
        answer = {**document(row), "token": token}
        return Response(answer, headers={"Cache-Control": "no-store"})


class TokenView(TrainyardView):
    """`DELETE /api/v1/tokens/<id>`: revoke it."""

    @described("Revoke an API token", Nothing, needs=ACCOUNT)
    def delete(self, request: Request, token: str) -> Response:
        user = account(request)
        if not ApiToken.objects.filter(user=user, pk=int(token)).exists():
            raise Http404
        with transaction.atomic():
            tokens.revoke(user, int(token), timezone.now())
        return Response({})


def granted(user: User, body: RequestBody) -> Grant:
    """The rights that are wanted for a token. Raises BadRequest about the scope, Http404 about the project."""
    scope = body.text("scope", Scope.ADMIN)
    if scope not in set(Scope):
        raise BadRequest("scope", f"scope must be one of {', '.join(Scope)}.")
    name = body.text("project", "")
    project = access.project_or_404(user, "see", name) if name else None
    return Grant(Scope(scope), project.pk if project else None)


def document(row: ApiToken) -> Document:
    return {
        "id": str(row.pk),
        "name": row.name,
        "createTime": format_time(row.created_at),
        "expireTime": format_time(row.expires_at),
        "elevated": row.elevated,
        "scope": row.scope,
        **({"project": row.project.name} if row.project else {}),
        **({"lastUseTime": format_time(row.last_used_at)} if row.last_used_at else {}),
    }
