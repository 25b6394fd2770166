"""What every answer of the web process carries, and the page for a database that does not answer."""

from __future__ import annotations

import logging
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template.loader import render_to_string

from agents.infra.database_errors import DATABASE_UNAVAILABLE
from console.views import errors

log = logging.getLogger(__name__)

# No inline script and no inline style anywhere, so neither needs a nonce, and a text that slipped through
# unescaped still cannot run. `data:` images are the icons in our own style sheets.
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
    """Security headers on all answers. A view sets `response.inline_styles` where a terminal makes its own styles."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        response.headers.setdefault(
            "Content-Security-Policy", policy(getattr(response, "inline_styles", False))
        )
        response.headers.setdefault("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
        if response.headers.get("Content-Type", "").startswith("text/html"):
            # A page shows what was true for one person at one time: neither proxies nor other people get it.
            response.headers.setdefault("Cache-Control", "private, no-cache")
        return response

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """A database that is away or locked is a state of the world, not a bug: say so, and that it passes."""
        if not isinstance(error, DATABASE_UNAVAILABLE) or request.path.startswith(("/v1/", "/api/")):
            return None
        log.warning("The database did not answer: %s", error)
        return HttpResponse(render_to_string("errors/503.html"), status=503, headers={"Retry-After": "5"})


class RejectNul:
    """An address that holds a NUL names nothing: PostgreSQL cannot even be asked for it."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if "\0" in request.path or "%00" in request.META.get("QUERY_STRING", ""):
            return errors.bad_request(request, ValueError("NUL in the address"))
        return self.get_response(request)


def policy(inline_styles: bool = False) -> str:
    rules = POLICY | ({"style-src": "'self' 'unsafe-inline'"} if inline_styles else {})
    return "; ".join(f"{name} {value}" for name, value in rules.items())
