"""A person's own sessions in browsers: listed, ended one by one or all at once."""

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
from console.api.views import TrainyardView, account
from console.auth import session_list
from console.models import Session

Document = dict[str, Any]


class SessionDocument(TypedDict):
    """`way`: how the person logged in."""

    id: str
    address: str
    userAgent: str
    way: str
    createTime: NotRequired[Time]
    lastUseTime: NotRequired[Time]
    expireTime: Time


class Sessions(TypedDict):
    sessions: list[SessionDocument]


class EndBody(TypedDict, total=False):
    """`tokens`: revoke all tokens too."""

    tokens: bool


class EndedSessions(TypedDict):
    sessionsEnded: int
    tokensRevoked: int


class SessionsView(TrainyardView):
    """`GET /api/v1/sessions`."""

    @described("List the browsers in which you are logged in", Sessions, needs=ACCOUNT)
    def get(self, request: Request) -> Response:
        rows = session_list.of(account(request), timezone.now())
        return Response({"sessions": [document(row) for row in rows]})


class SessionView(TrainyardView):
    """`DELETE /api/v1/sessions/<id>`: end it, with its sockets and the shells that it opened."""

    @described("Log one browser out", Nothing, needs=ACCOUNT)
    def delete(self, request: Request, session: str) -> Response:
        user = account(request)
        with transaction.atomic():
            if not session_list.end(user, session, user.username, timezone.now()):
                raise Http404
        return Response({})


class EndSessionsView(TrainyardView):
    """`POST /api/v1/sessions:endAll {"tokens"}`: log the person out of all browsers; with `tokens`, of all scripts."""

    @described("Log out of all browsers", EndedSessions, needs=ACCOUNT, body=EndBody)
    def post(self, request: Request) -> Response:
        with_tokens = RequestBody(request, EndBody).boolean("tokens")
        user = account(request)
        with transaction.atomic():
            ended, revoked = session_list.end_everywhere(
                user, user.username, timezone.now(), with_tokens=with_tokens
            )
        return Response({"sessionsEnded": ended, "tokensRevoked": revoked})


def document(row: Session) -> Document:
    times = {"createTime": row.made_at, "lastUseTime": row.seen_at}
    return {
        "id": session_list.id_of(row),
        "address": row.address,
        "userAgent": row.agent,
        "way": row.way,
        **{name: format_time(moment) for name, moment in times.items() if moment},
        "expireTime": format_time(row.expire_date),
    }
