"""Security headers of every response, the refusal of NUL in addresses, the page for an unavailable database, and when
each session was last used."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.utils import timezone

from agents.infra import clock
from agents.infra.database_errors import DATABASE_UNAVAILABLE
from agents.infra.refusals import Unavailable
from console.auth.login import second_factor
from console.auth.session_store import BEGUN, SessionStore
from console.views import errors

log = logging.getLogger(__name__)

TRY_AGAIN = {"Retry-After": "5"}
NO_DATABASE = "The database does not answer at the moment. Try again."
NO_SECOND_FACTOR = "Set up a second factor first: Account → Security."
# What a person may do who has to set up a second factor first.
SETTING_UP = {"/account/second-factor", "/account/second-factor/begin", "/logout", "/theme", "/language"}
# No page has inline scripts or inline styles, so no nonce is needed, and a text that was not escaped by mistake still
# cannot run. `data:` images are the icons in our own style sheets.
POLICY = {
    "default-src": "'self'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data:",
    "connect-src": "'self'",
    "object-src": "'none'",
    "base-uri": "'none'",
    "form-action": "'self'",
    "frame-ancestors": "'none'",
}


class SecurityHeaders:
    """Sets security headers on all responses. A view sets `response.inline_styles` for a terminal that makes styles."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        if response.status_code == 405 and not getattr(response, "content", b""):
            response = errors.wrong_method(request, response)
        response.headers.setdefault(
            "Content-Security-Policy", policy(getattr(response, "inline_styles", False))
        )
        response.headers.setdefault("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
        if response.headers.get("Content-Type", "").startswith("text/html"):
            # A page is for one person at one time: proxies must not keep it for others.
            response.headers.setdefault("Cache-Control", "private, no-cache")
        return response

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Answer 503 with a plain page when the database or the storage is unavailable: this is not a bug, and it
        passes."""
        if request.path.startswith(("/v1/", "/api/")):
            return None
        if isinstance(error, Unavailable):
            return errors.unavailable(request, TRY_AGAIN, error.message)
        if not isinstance(error, DATABASE_UNAVAILABLE):
            return None
        log.warning("The database did not answer: %s", error)
        return errors.unavailable(request, TRY_AGAIN)


class TimeIsKnown:
    """Answers 503 while the time is not known, because the database has not answered since this process began.

    Otherwise a request could wait for the database, and then write a row that is dated by a wrong clock.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if clock.is_known():
            return self.get_response(request)
        if request.path.startswith(("/v1", "/v2", "/api/")):
            error = {"code": 503, "message": NO_DATABASE, "status": "UNAVAILABLE"}
            return JsonResponse({"error": error}, status=503, headers=TRY_AGAIN)
        return errors.unavailable(request, TRY_AGAIN)


class RejectNul:
    """Refuses addresses with a NUL character: nothing has such a name, and PostgreSQL refuses it in a query."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if "\0" in request.path or "%00" in request.META.get("QUERY_STRING", ""):
            return errors.bad_request(request, ValueError("NUL in the address"))
        return self.get_response(request)


class SessionUse:
    """Notes when and from where each session is used, for the list that its owner sees.

    A request that does not ask who sends it (a static file, a script with a token) costs nothing.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        store = request.session
        if isinstance(store, SessionStore) and store.accessed and store.session_key:
            # The answer is ready: a database that went away meanwhile must not turn it into an error.
            with suppress(*DATABASE_UNAVAILABLE):
                store.note_seen(str(request.META.get("REMOTE_ADDR", "")), timezone.now())
        return response


class SecondFactorRequired:
    """Where the deployment wants a second factor, a person without one gets the page that sets one up, and no other.

    Scripts with a token are not asked. Sockets ask by themselves (console/auth/sessions.py).
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if not settings.TRAINYARD.require_second_factor or not self._is_missing(request):
            return self.get_response(request)
        if request.path in SETTING_UP or request.path.startswith("/static/"):
            return self.get_response(request)
        if request.path.startswith(("/v1", "/v2", "/api/")):
            error = {"code": 403, "message": NO_SECOND_FACTOR, "status": "PERMISSION_DENIED"}
            return JsonResponse({"error": error}, status=403)
        return redirect("second-factor")

    def _is_missing(self, request: HttpRequest) -> bool:
        kind = request.headers.get("Authorization", "").partition(" ")[0]
        if kind.lower() == "bearer" or not isinstance(request.user, User):
            return False
        return second_factor.is_missing(request.user, request.session.get(BEGUN, {}).get("way", ""))


def policy(inline_styles: bool = False) -> str:
    rules = POLICY | ({"style-src": "'self' 'unsafe-inline'"} if inline_styles else {})
    return "; ".join(f"{name} {value}" for name, value in rules.items())
