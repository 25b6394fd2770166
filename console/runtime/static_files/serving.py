"""Serves static files from the web process with WhiteNoise, adapted to ASGI."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from whitenoise.middleware import WhiteNoiseMiddleware

from console.runtime.static_files import build

# The digest in a name that `build.HashedFiles` has made.
DIGEST = re.compile(r"\.[0-9a-f]{12}(?=\.\w+$)")


class StaticFilesMiddleware(WhiteNoiseMiddleware):  # type: ignore[misc]
    """Reads each file at once, in the thread that runs the middleware. Our files are small.

    WhiteNoise itself streams files. Under ASGI, streaming logs a warning for each request and switches threads for each
    block.
    """

    # A year, for files with hashed names: the longest time that HTTP's authors recommend.
    FOREVER = 365 * 24 * 3600

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        super().__init__(get_response, settings)
        if not self.autorefresh:
            self.add_files(build.ready(), prefix=self.static_prefix)

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if not request.path_info.startswith(self.static_prefix):
            return self.get_response(request)  # type: ignore[no-any-return]
        found = self.file_at(request.path_info)
        return whole(self.serve(found, request), request) if found else self.get_response(request)

    def file_at(self, path: str) -> Any:
        """The file at this address. A page of another version may ask for a name that this version does not have: it
        gets the file as it is now, which browsers then keep under that name only until they ask again.
        """
        if self.autorefresh:
            return self.find_file(path)
        return self.files.get(path) or self.files.get(DIGEST.sub("", path))

    def immutable_file_test(self, path: str, url: str) -> bool:
        return bool(DIGEST.search(url))


def whole(response: Any, request: HttpRequest) -> HttpResponseBase:
    content = HttpResponse(b"".join(response.streaming_content), status=response.status_code)
    content.headers = response.headers
    # WhiteNoise remembers lengths from its start; a file may have been replaced since then.
    if request.method == "GET":
        content.headers["Content-Length"] = str(len(content.content))
    response.close()
    return content
