"""Static files straight from the web process, as WhiteNoise does it, in a form that ASGI sends without complaint."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse, HttpResponseBase
from django.http.request import HttpRequest
from whitenoise.middleware import WhiteNoiseMiddleware


class StaticFilesMiddleware(WhiteNoiseMiddleware):  # type: ignore[misc]
    """WhiteNoise answers with a lazily read file; under ASGI that warns on every request and hops threads per block.

    Our files are small, so they are read here, in the thread that runs the middleware.
    """

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response: Any = super().__call__(request)
        if not getattr(response, "streaming", False) or not request.path_info.startswith("/static/"):
            return response  # type: ignore[no-any-return]
        whole = HttpResponse(b"".join(response.streaming_content), status=response.status_code)
        whole.headers = response.headers
        # A file that was replaced since the start is not as long as WhiteNoise remembers.
        if request.method == "GET":
            whole.headers["Content-Length"] = str(len(whole.content))
        response.close()
        return whole
