"""Stored files as downloads: never shown by a browser as what they say they are, in whole or in part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import quote

from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse

from console.presenters import byte_range
from jobs.artifacts import blobs
from jobs.models import Blob

PLAIN = "application/octet-stream"
Reader = Callable[[int, int], Iterator[bytes]]


def of_blob(blob: Blob, name: str, asked_range: str, content_type: str = PLAIN) -> HttpResponseBase:
    """The bytes, or the range of them that is asked for. Raises BytesMissing before the answer begins.

    `content_type` is for programs. A browser keeps the file and does not guess what it is.
    """
    chosen = byte_range.chosen(asked_range, blob.size)
    if chosen is None:
        return HttpResponse(status=416, headers={"Content-Range": f"bytes */{blob.size}"})
    start, end = chosen
    answer = StreamingHttpResponse(blobs.read(blob, start, end), content_type=content_type)
    if asked_range and (start, end) != (0, blob.size):
        answer.status_code = 206
        answer["Content-Range"] = f"bytes {start}-{end - 1}/{blob.size}"
    answer["Content-Length"] = str(end - start)
    answer["Content-Disposition"] = (
        f"attachment; filename*=UTF-8''{quote(name.rstrip('/').rpartition('/')[2])}"
    )
    answer["X-Content-Type-Options"] = "nosniff"
    answer["Content-Security-Policy"] = "sandbox; default-src 'none'"
    answer["Accept-Ranges"] = "bytes"
    answer["Cache-Control"] = "private, no-store"
    return answer
