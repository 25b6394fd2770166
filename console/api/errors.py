"""Errors in the form that Google's clients read: {"error": {"code", "message", "status", "details"}}."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Annotated, Any, NotRequired, TypedDict

from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.http import Http404
from django.utils import translation
from rest_framework import exceptions
from rest_framework.response import Response

from agents.infra.database_errors import DATABASE_UNAVAILABLE
from agents.infra.refusals import Refused
from agents.infra.sentences import shown
from agents.infra.texts import Text, said
from console.api.description import one_of
from console.api.rate_limits import TooManyRequests
from jobs import services
from jobs.rules.spec import parse
from jobs.rules.spec.json_fields import Violation

log = logging.getLogger(__name__)

RPC = "type.googleapis.com/google.rpc"

STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    409: "ALREADY_EXISTS",
    413: "INVALID_ARGUMENT",
    415: "INVALID_ARGUMENT",
    416: "OUT_OF_RANGE",
    429: "RESOURCE_EXHAUSTED",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
}


class ErrorBody(TypedDict):
    """`message` stays English. `details` has what is wrong with which field, and the message in other languages."""

    code: int
    message: str
    status: Annotated[str, one_of(dict.fromkeys([*STATUS.values(), "INTERNAL"]))]
    details: NotRequired[list[dict[str, Any]]]


class ErrorAnswer(TypedDict):
    """What every call answers that was not done."""

    error: ErrorBody


class BadRequest(Refused):
    """A field of the request has a value that the API does not accept. `field` is empty for the whole body."""


class Unimplemented(Exception):
    """Google's API has this resource, and Trainyard does not."""


def error_response(code: int, message: str, violations: Iterable[Violation] = ()) -> Response:
    error: dict[str, object] = {"code": code, "message": message, "status": STATUS.get(code, "INTERNAL")}
    fields = [{"field": one.field, "description": one.description} for one in violations]
    if fields:
        error["details"] = [{"@type": f"{RPC}.BadRequest", "fieldViolations": fields}]
    return Response({"error": error}, status=code)


def add_translations(response: Response, language: str) -> None:
    """Add the error in the language of the request, where Google's form has a place for it.

    `message` stays as it is, because programs compare it. A text that only programs cause has no translation.
    """
    error = response.data.get("error") if isinstance(response.data, dict) else None
    if not isinstance(error, dict):
        return
    details = error.get("details", [])
    with translation.override(language):
        for violation in (each for detail in details for each in detail.get("fieldViolations", ())):
            if isinstance(violation["description"], Text):
                violation["localizedMessage"] = _localized(violation["description"], language)
        if isinstance(error["message"], Text):
            localized = {"@type": f"{RPC}.LocalizedMessage", **_localized(error["message"], language)}
            error["details"] = [*details, localized]


def _localized(text: Text, language: str) -> dict[str, str]:
    return {"locale": language, "message": shown(text)}


def response_for(problem: Exception) -> Response | None:
    """The response for an error of the caller or for a temporary problem. None for a bug of ours."""
    if isinstance(problem, parse.InvalidDocument):
        return error_response(400, f"The job cannot be accepted: {problem}", problem.violations)
    if isinstance(problem, Refused):
        fields = [Violation(problem.field, problem.message)] if problem.field else []
        code = 429 if isinstance(problem, services.Exhausted) else 400
        return error_response(
            409 if isinstance(problem, services.Conflict) else code, problem.message, fields
        )
    if isinstance(problem, services.Unavailable):
        return error_response(503, problem.message)
    if isinstance(problem, DATABASE_UNAVAILABLE):
        log.warning("The database did not answer: %s", problem)
        return error_response(503, said("The database does not answer at the moment. Try again."))
    if isinstance(problem, Http404):
        return error_response(404, said("There is no such resource, or you may not see it."))
    if isinstance(problem, Unimplemented):
        return error_response(501, str(problem))
    if isinstance(problem, PermissionDenied):
        return error_response(403, _words(problem) or said("You may see this, but not do that to it."))
    if isinstance(problem, RequestDataTooBig):
        return error_response(413, said("The body is too large."))
    if isinstance(problem, RecursionError):
        return error_response(400, "The body is nested too deeply.")
    if isinstance(problem, TooManyRequests):
        refused = error_response(429, str(problem))
        refused["Retry-After"] = str(problem.retry_after_s)
        return refused
    if isinstance(problem, exceptions.APIException):
        return error_response(problem.status_code, str(problem.detail))
    return None


def _words(problem: Exception) -> str:
    """What was said, which `str()` would make plain English of."""
    return problem.args[0] if problem.args and isinstance(problem.args[0], str) else ""
