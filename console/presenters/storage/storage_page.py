"""What a project stores, for its pages: how much of its quota, the buckets, the artifacts, the objects of a bucket."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.db.models import Count, Sum
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from agents.infra.sentences import shown
from console.auth import access
from console.forms.storage import KINDS
from console.presenters.file_row import FileRow
from jobs.artifacts import artifacts, expiry, objects, room
from jobs.models import Artifact, Bucket, Project
from jobs.rules.scheduling.quota import GB

ARTIFACTS_SHOWN = 200
OBJECTS_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Use:
    """What is stored, in GB, and how much may be. `percent`: of the quota."""

    gb: float
    limit: float | None
    warning: str

    @property
    def percent(self) -> int:
        return 0 if not self.limit else int(100 * self.gb / self.limit)


@dataclass(frozen=True, slots=True)
class BucketRow:
    name: str
    objects: int
    size: int
    created_at: datetime
    created_by: str


@dataclass(frozen=True, slots=True)
class StoragePage:
    use: Use
    buckets: tuple[BucketRow, ...]
    artifacts: tuple[FileRow, ...]
    more_artifacts: bool
    may_store: bool


@dataclass(frozen=True, slots=True)
class BucketPage:
    """One folder of a bucket. `above`: the folders on the way to it, each with its name and address."""

    uri: str
    files: tuple[FileRow, ...]
    above: tuple[tuple[str, str], ...]
    next_url: str
    may_store: bool
    may_manage: bool
    # Why nothing is deleted by its age now, where there is such a rule.
    waits: str = ""


def page(project: Project, user: User) -> StoragePage:
    may_store = access.can(user, "store", project) and project.archived_at is None
    counted = Bucket.objects.filter(project=project).annotate(
        count=Count("stored_objects"), size=Sum("stored_objects__blob__size")
    )
    rows = [
        BucketRow(row.name, row.count, row.size or 0, row.created_at, row.created_by)
        for row in counted.order_by("name")
    ]
    found = list(artifacts.of(project)[: ARTIFACTS_SHOWN + 1])
    return StoragePage(
        use=use_of(project),
        buckets=tuple(rows),
        artifacts=tuple(_artifact(project, row, may_store) for row in found[:ARTIFACTS_SHOWN]),
        more_artifacts=len(found) > ARTIFACTS_SHOWN,
        may_store=may_store,
    )


def use_of(project: Project) -> Use:
    stored = room.stored_bytes([project.pk]).get(project.pk, 0) / GB
    return Use(stored, room.limit_of(project), shown(room.warning(project)))


def _artifact(project: Project, row: Artifact, may_store: bool) -> FileRow:
    return FileRow(
        name=row.name,
        about=str(KINDS[row.kind]),
        download=reverse("artifact-file", args=[project.name, row.sha256]),
        delete=reverse("delete-artifact", args=[project.name, row.sha256]) if may_store else "",
        size=row.blob.size,
        changed_at=row.created_at,
        by=row.created_by,
    )


def bucket_page(bucket: Bucket, user: User, prefix: str, page_token: str) -> BucketPage:
    project = bucket.project
    may_store = access.can(user, "store", project) and project.archived_at is None
    found = objects.list_objects(bucket, prefix, "/", _position(page_token), OBJECTS_SHOWN)
    folders = [
        FileRow(name[len(prefix) : -1], _("directory"), is_directory=True, url=folder_url(bucket, name))
        for name in found.prefixes
    ]
    files = [
        FileRow(
            name=row.name[len(prefix) :] or row.name,
            about=row.content_type,
            download=reverse("object-file", args=[project.name, bucket.name, row.name]),
            delete=reverse("delete-object", args=[project.name, bucket.name, row.name]) if may_store else "",
            size=row.blob.size,
            changed_at=row.updated_at,
            by=row.created_by,
        )
        for row in found.objects
    ]
    next_url = ""
    if found.next_position:
        token = base64.urlsafe_b64encode(found.next_position).decode()
        next_url = f"{folder_url(bucket, prefix)}&{urlencode({'page': token})}"
    parts = prefix.rstrip("/").split("/") if prefix else []
    above = [(part, folder_url(bucket, "/".join(parts[: at + 1]) + "/")) for at, part in enumerate(parts)]
    may_manage = access.can(user, "manage", project)
    uri = f"gs://{bucket.name}"
    waits = shown(expiry.waits(timezone.now())) if bucket.keep_days else ""
    return BucketPage(uri, tuple(folders + files), tuple(above), next_url, may_store, may_manage, waits)


def folder_url(bucket: Bucket, prefix: str) -> str:
    return f"{reverse('bucket', args=[bucket.project.name, bucket.name])}?{urlencode({'prefix': prefix})}"


def _position(token: str) -> bytes:
    try:
        return base64.b64decode(token.encode(), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError):
        return b""
