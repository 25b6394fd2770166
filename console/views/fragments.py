"""One address, two answers: a whole page for a browser, the part that changes for htmx."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.cache import patch_vary_headers


def page_or_fragment(
    request: HttpRequest, page: str, fragment: str, context: Mapping[str, Any], status: int = 200
) -> HttpResponse:
    """Render the template `fragment` for a request of htmx, and the template `page` for every other request.

    A fragment has no place for messages, so they come in a header: static/frame/toasts.js shows and keeps them.
    `Vary` keeps the two apart in the browser's cache. Without it, Back could show the fragment as a page.
    """
    response = render(request, fragment if asks_for_fragment(request) else page, context, status=status)
    patch_vary_headers(response, ["HX-Request"])
    if asks_for_fragment(request):
        _send_messages(request, response)
    return response


def asks_for_fragment(request: HttpRequest) -> bool:
    return bool(request.htmx)  # type: ignore[attr-defined]  # django-htmx sets it


def _send_messages(request: HttpRequest, response: HttpResponse) -> None:
    """Only what this request has said: what another one has said is for the page that it leads to."""
    said = messages.get_messages(request)
    if getattr(said, "added_new", False):
        told = [{"level": message.level_tag, "text": str(message)} for message in said]
        response.headers["HX-Trigger"] = json.dumps({"toasts": {"all": told}})
