"""Error pages. They make no query, because the database may be the cause of the error."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string

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
    return HttpResponse(render_to_string("errors/csrf.html", {"path": request.path}), status=403)


def _answer(request: HttpRequest, status: int) -> HttpResponse:
    if request.path.lstrip("/").startswith(FOR_SCRIPTS):
        error = {"code": status, "status": GRPC[status], "message": MESSAGES[status]}
        return JsonResponse({"error": error}, status=status)
    theme = request.COOKIES.get("theme", "")
    return HttpResponse(render_to_string(f"errors/{status}.html", {"theme": theme}), status=status)
