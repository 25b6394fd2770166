"""The Files tab of a job: how far its outputs are stored, a directory of them, and the preview of a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from console.presenters.file_row import FileRow
from jobs.models import Job, OutputStage, StoredObject
from jobs.outputs import browsing, previews, state
from jobs.outputs.state import HostState

# What is left out of the storage, by the words of the host.
LEFT_OUT: Mapping[str, str] = {
    "links": gettext_noop("links"),
    "other": gettext_noop("pipes, sockets and devices"),
    "names": gettext_noop("files whose names no object can have"),
    "too_many": gettext_noop("files beyond the limit"),
    "unreadable": gettext_noop("files and directories that cannot be read"),
    "elsewhere": gettext_noop("files of buckets that the job does not name"),
}


@dataclass(frozen=True, slots=True)
class Step:
    """A directory above, in the way down to this one."""

    name: str
    url: str


@dataclass(frozen=True, slots=True)
class HostRow:
    state: HostState
    left_out: tuple[tuple[str, int], ...]

    @property
    def is_done(self) -> bool:
        return self.state.stage == OutputStage.STORED

    @property
    def percent(self) -> str:
        if not self.state.bytes:
            return "100" if not self.state.left_files else "0"
        return number_format(min(100, 100 * self.state.stored_bytes // self.state.bytes))


@dataclass(frozen=True, slots=True)
class OutputsPage:
    path: str
    name: str
    steps: tuple[Step, ...]
    rows: tuple[FileRow, ...]
    hosts: tuple[HostRow, ...]
    addresses: tuple[str, ...]
    is_found: bool
    is_cut: bool
    next_url: str
    archive_url: str
    replicas: tuple[Step, ...]
    """The work directories of replicas, for those who may open shells there."""


def page(job: Job, path: str, position: bytes, may_shell: bool) -> OutputsPage:
    listing = browsing.list_directory(job, path, position)
    entries = listing.entries if listing else ()
    has_files = any(not entry.host for entry in entries)
    return OutputsPage(
        path=path,
        name=path.rpartition("/")[2],
        steps=tuple(_steps(job, path)),
        rows=tuple(_row(job, path, entry) for entry in entries),
        hosts=tuple(_hosts(state.of_job(job))),
        addresses=tuple(str(each) for each in browsing.addresses(job)),
        is_found=listing is not None or not path,
        is_cut=bool(listing and listing.is_cut),
        next_url=_url("job-outputs", job, path, at=listing.next_position.hex())
        if listing and listing.next_position
        else "",
        archive_url=_content(job, path) if path and has_files else "",
        replicas=tuple(_work_directories(job)) if may_shell else (),
    )


def _hosts(found: Iterable[HostState]) -> Iterable[HostRow]:
    for each in found:
        yield HostRow(each, tuple((LEFT_OUT.get(kind, kind), n) for kind, n in sorted(each.left_out.items())))


def _work_directories(job: Job) -> Iterable[Step]:
    if job.spec.get("enableWebAccess"):
        for name in job.replicas.order_by("pool", "index").values_list("name", flat=True)[:100]:
            yield Step(name, reverse("job-files", args=[job.pk, name]))


def _steps(job: Job, path: str) -> Iterable[Step]:
    parts = path.split("/") if path else []
    for number, name in enumerate(parts[:-1], 1):
        yield Step(name, _url("job-outputs", job, "/".join(parts[:number])))


def _row(job: Job, path: str, entry: browsing.Entry) -> FileRow:
    inner = f"{path}/{entry.name}".strip("/")
    if entry.is_directory:
        about, url, download = _("directory"), _url("job-outputs", job, inner), ""
    elif entry.host:
        about, url, download = _("on host {host}, not stored yet").format(host=entry.host), "", ""
    else:
        about, url, download = _("stored"), _url("job-output", job, inner), _content(job, inner)
    return FileRow(
        entry.name, about, entry.is_directory, entry.size, entry.changed_at, url=url, download=download
    )


def _url(name: str, job: Job, path: str, **more: str) -> str:
    query = {**({"path": path} if path else {}), **more}
    return f"{reverse(name, args=[job.pk])}{'?' + urlencode(query) if query else ''}"


def _content(job: Job, path: str) -> str:
    return f"/api/v1/jobs/{job.pk}/outputs/content?{urlencode({'path': path})}"


@dataclass(frozen=True, slots=True)
class FilePage:
    path: str
    name: str
    steps: tuple[Step, ...]
    size: int
    stored_at: datetime
    content_type: str
    sha256: str
    text: previews.TextPreview | None
    image_url: str
    download_url: str


def file_page(job: Job, path: str, stored: StoredObject) -> FilePage:
    is_image = bool(previews.image_type(stored))
    return FilePage(
        path=path,
        name=path.rpartition("/")[2],
        steps=tuple(_steps(job, path)),
        size=stored.blob.size,
        stored_at=stored.updated_at,
        content_type=stored.content_type,
        sha256=stored.blob.sha256,
        text=None if is_image else previews.text(job, stored),
        image_url=_url("job-output-image", job, path) if is_image else "",
        download_url=_content(job, path),
    )
