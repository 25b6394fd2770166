"""One address, two answers: a whole page for a browser, the part that changes for htmx."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.cache import patch_vary_headers


def page_or_fragment(
    request: HttpRequest, page: str, fragment: str, context: Mapping[str, Any], status: int = 200
) -> HttpResponse:
    """Render the template `fragment` for a request of htmx, and the template `page` for every other request.

    `Vary` keeps the two apart in the browser's cache. Without it, Back could show the fragment as a page.
    """
    response = render(request, fragment if asks_for_fragment(request) else page, context, status=status)
    patch_vary_headers(response, ["HX-Request"])
    return response


def asks_for_fragment(request: HttpRequest) -> bool:
    return bool(request.htmx)  # type: ignore[attr-defined]  # django-htmx sets it
