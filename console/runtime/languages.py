"""Chooses the language of a page or a socket: what a person chose, or else what the browser asks for.

REST, sockets of logs and shells, the command line and our own logs stay English, because programs read them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import translation
from django.utils.cache import patch_vary_headers

FOR_PROGRAMS = ("/v1", "/v2", "/api/", "/healthz")


class Language:
    """Answers each page in the language of its reader."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if request.path_info.startswith(FOR_PROGRAMS):
            code = settings.LANGUAGE_CODE
        else:
            code = chosen(request.COOKIES, request.headers.get("Accept-Language", ""))
        # A thread serves many people: the language is put back at the end.
        with translation.override(code):
            request.LANGUAGE_CODE = code
            response = self.get_response(request)
        if response.headers.get("Content-Type", "").startswith("text/html"):
            response.headers.setdefault("Content-Language", code)
            patch_vary_headers(response, ("Accept-Language", "Cookie"))
        return response


def chosen(cookies: Mapping[str, str], accepted: str) -> str:
    """The cookie with the person's choice comes first, then the `Accept-Language` of the browser, then English."""
    asked: Any = SimpleNamespace(COOKIES=cookies, META={"HTTP_ACCEPT_LANGUAGE": accepted})
    return translation.get_language_from_request(cast(HttpRequest, asked))
