"""Serves static files from the web process with WhiteNoise, adapted to ASGI."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse, HttpResponseBase
from django.http.request import HttpRequest
from whitenoise.middleware import WhiteNoiseMiddleware


class StaticFilesMiddleware(WhiteNoiseMiddleware):  # type: ignore[misc]
    """Reads each file at once, in the thread that runs the middleware. Our files are small.

    WhiteNoise itself streams files. Under ASGI, streaming logs a warning for each request and switches threads for each
    block.
    """

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response: Any = super().__call__(request)
        if not getattr(response, "streaming", False) or not request.path_info.startswith("/static/"):
            return response  # type: ignore[no-any-return]
        whole = HttpResponse(b"".join(response.streaming_content), status=response.status_code)
        whole.headers = response.headers
        # WhiteNoise remembers lengths from its start; a file may have been replaced since then.
        if request.method == "GET":
            whole.headers["Content-Length"] = str(len(whole.content))
        response.close()
        return whole
