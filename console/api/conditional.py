"""ETag on what is read: a script that asks again with `If-None-Match` gets 304 while nothing has changed."""

from __future__ import annotations

import hashlib

from django.http import HttpResponse
from django.utils.cache import get_conditional_response, patch_cache_control, patch_vary_headers
from rest_framework.request import Request
from rest_framework.response import Response


def add_etag(request: Request, response: Response) -> None:
    """Give a response to GET the ETag of its body, when it is written. The permission was checked before."""
    if request.method in ("GET", "HEAD") and response.status_code == 200 and not response.has_header("ETag"):
        response.add_post_render_callback(lambda rendered: _answer(request, rendered))


def _answer(request: Request, response: HttpResponse) -> HttpResponse | None:
    # Weak: the same content may be compressed or not.
    response["ETag"] = etag = f'W/"{hashlib.sha256(response.content).hexdigest()[:32]}"'
    patch_vary_headers(response, ("Authorization", "Cookie"))
    if not response.has_header("Cache-Control"):
        patch_cache_control(response, private=True, no_cache=True)
    found = get_conditional_response(request._request, etag=etag, response=response)
    if found is None or found is response or found.status_code != 304:
        return None
    return found if isinstance(found, HttpResponse) else None
