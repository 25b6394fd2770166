"""The files of a replica as a page lists them, and one of them as a download."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote, urlencode

from django.http import StreamingHttpResponse
from django.urls import reverse

from agents.ssh.files import Entry, Listing


@dataclass(frozen=True, slots=True)
class FileRow:
    name: str
    kind: str
    size: int | None
    changed_at: datetime | None
    url: str
    """Of the directory, or of the download; empty for what is neither, and for a link."""


@dataclass(frozen=True, slots=True)
class FileList:
    rows: tuple[FileRow, ...]
    more: int


def rows(job_id: int, replica: str, path: str, listing: Listing) -> FileList:
    found = sorted(listing.entries, key=lambda entry: (entry.kind != "directory", entry.name))
    return FileList(tuple(_row(job_id, replica, path, entry) for entry in found), listing.more)


def _row(job_id: int, replica: str, path: str, entry: Entry) -> FileRow:
    name = {"directory": "job-files", "file": "job-file"}.get(entry.kind)
    inner = f"{path}/{entry.name}".strip("/")
    url = _url(name, job_id, replica, inner) if name else ""
    size = entry.size if entry.kind == "file" else None
    return FileRow(entry.name, entry.kind, size, entry.changed_at, url)


def parent(job_id: int, replica: str, path: str) -> str:
    """The address of the directory above; empty at the top."""
    return _url("job-files", job_id, replica, path.rpartition("/")[0]) if path else ""


def _url(name: str, job_id: int, replica: str, path: str) -> str:
    address = reverse(name, args=[job_id, replica])
    return f"{address}?{urlencode({'path': path})}" if path else address


def download(parts: Iterable[bytes], path: str, size: int) -> StreamingHttpResponse:
    """A file to be kept and never to be shown: a job's program wrote it."""
    response = StreamingHttpResponse(parts, content_type="application/octet-stream")
    name = quote(path.rsplit("/", 1)[-1])
    response["Content-Disposition"] = f"attachment; filename*=UTF-8''{name}"
    response["X-Content-Type-Options"] = "nosniff"
    response["Content-Length"] = str(size)
    return response
