"""The files of a replica as a page lists them, and one of them as a download."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from django.http import StreamingHttpResponse
from django.urls import reverse
from django.utils.translation import gettext, gettext_noop
from django.utils.translation import gettext as _

from agents.ssh.files import Entry, Listing
from console.presenters.file_row import FileRow

KINDS: Mapping[str, str] = {
    "directory": gettext_noop("directory"),
    "file": gettext_noop("file"),
    "link": gettext_noop("link, not followed"),
}


@dataclass(frozen=True, slots=True)
class FileList:
    rows: tuple[FileRow, ...]
    more: int


def rows(job_id: int, replica: str, path: str, listing: Listing) -> FileList:
    found = sorted(listing.entries, key=lambda entry: (entry.kind != "directory", entry.name))
    return FileList(tuple(_row(job_id, replica, path, entry) for entry in found), listing.more)


def _row(job_id: int, replica: str, path: str, entry: Entry) -> FileRow:
    inner = f"{path}/{entry.name}".strip("/")
    is_file, is_directory = entry.kind == "file", entry.kind == "directory"
    return FileRow(
        entry.name,
        gettext(KINDS[entry.kind]) if entry.kind in KINDS else _("not a file"),
        is_directory,
        entry.size if is_file else None,
        entry.changed_at,
        url=_url("job-files", job_id, replica, inner) if is_directory else "",
        download=_url("job-file", job_id, replica, inner) if is_file else "",
    )


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
