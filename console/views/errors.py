"""Error pages. A person keeps the menu.

The pages for errors of the server make no query, because the database may be the cause. Each of the others does without
the menu of the person where that cannot be made.
"""

from __future__ import annotations

import logging

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.template.loader import render_to_string

from agents.infra.sentences import shown

log = logging.getLogger(__name__)

FOR_SCRIPTS = ("v1/", "v1beta1/", "v2/", "api/", "storage/", "upload/")
GRPC = {400: "INVALID_ARGUMENT", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 500: "INTERNAL"}
MESSAGES = {400: "Bad request.", 403: "Not allowed.", 404: "Not found.", 500: "Internal error."}


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _answer(request, 400)


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _answer(request, 403)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _answer(request, 404)


def broken(request: HttpRequest) -> HttpResponse:
    return _answer(request, 500)


def csrf(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Answer a form without a valid CSRF token: another site sent it, or the page is older than the login."""
    return HttpResponse(_page(request, "csrf", path=request.path), status=403)


def wrong_method(request: HttpRequest, refusal: HttpResponseBase) -> HttpResponseBase:
    """The page in place of Django's empty answer to a method that the address does not take."""
    if request.path.lstrip("/").startswith(FOR_SCRIPTS):
        return refusal
    return HttpResponse(
        _page(request, "405"), status=405, headers={"Allow": refusal.headers.get("Allow", "")}
    )


def unavailable(request: HttpRequest, headers: dict[str, str], why: str = "") -> HttpResponse:
    """`why`: a sentence in the place of that about the database."""
    return HttpResponse(_bare(request, "503", why=shown(why)), status=503, headers=headers)


def _answer(request: HttpRequest, status: int) -> HttpResponse:
    if request.path.lstrip("/").startswith(FOR_SCRIPTS):
        error = {"code": status, "status": GRPC[status], "message": MESSAGES[status]}
        return JsonResponse({"error": error}, status=status)
    page = _bare if status == 500 else _page
    return HttpResponse(page(request, str(status)), status=status)


def _page(request: HttpRequest, name: str, **context: object) -> str:
    """The page in the frame of all pages. A request that was refused early has no user yet."""
    if hasattr(request, "user"):
        try:
            return render_to_string(f"errors/{name}.html", {"outer": "base.html", **context}, request)
        except Exception as problem:
            log.warning("The page for an error has no menu: %r", problem)
    return _bare(request, name, **context)


def _bare(request: HttpRequest, name: str, **context: object) -> str:
    """The page without a query. Who shows a session, true or not, gets the menu, which has nothing of a person."""
    has_session = settings.SESSION_COOKIE_NAME in request.COOKIES
    found = {"outer": "errors/bare.html", "request": request, "has_session": has_session, **context}
    return render_to_string(f"errors/{name}.html", found)
