"""Security headers of every response, the refusal of NUL in addresses, and the page for an unavailable database."""

from __future__ import annotations

import logging
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase

from agents.infra import clock
from agents.infra.database_errors import DATABASE_UNAVAILABLE
from console.views import errors

log = logging.getLogger(__name__)

TRY_AGAIN = {"Retry-After": "5"}
NO_DATABASE = "The database does not answer at the moment. Try again."
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
        """Answer 503 with a plain page when the database is unavailable or locked: this is not a bug, and it passes."""
        if not isinstance(error, DATABASE_UNAVAILABLE) or request.path.startswith(("/v1/", "/api/")):
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


def policy(inline_styles: bool = False) -> str:
    rules = POLICY | ({"style-src": "'self' 'unsafe-inline'"} if inline_styles else {})
    return "; ".join(f"{name} {value}" for name, value in rules.items())
