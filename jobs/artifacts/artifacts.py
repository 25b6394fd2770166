"""Artifacts: files that jobs of a project bring, named by the SHA-256 of their bytes.

The same bytes are one artifact of the project, whoever adds them again. The caller has checked the permission.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

from django.db.models import QuerySet
from django.utils import timezone

from agents.infra.refusals import Refused
from agents.infra.texts import said
from jobs.artifacts import blobs, incoming
from jobs.artifacts.incoming import Digests
from jobs.models import Artifact, ArtifactKind, Job, Project, StoredObject
from jobs.projects import audit

KIND = "artifact"
SHA256 = re.compile(r"[0-9a-f]{64}")
_HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029/\\\\]")


def add_artifact(
    project: Project, kind: str, name: str, chunks: Iterable[bytes], by: str, sha256: str = ""
) -> Artifact:
    """Store these bytes as an artifact. `sha256`: what they must have, if it is known. Not inside a transaction."""
    check(project, kind, name)
    with incoming.incoming(project) as file:
        found = incoming.fill(file, chunks)
        incoming.check_digests(found, sha256=sha256)
        return add_file(project, kind, name, file.path, found, by, timezone.now())


def add_file(
    project: Project, kind: str, name: str, path: Path, found: Digests, by: str, now: datetime
) -> Artifact:
    """Store a complete file, whose digests are known. Raises Exhausted when the quota is full."""
    changing: dict[str, object] = {"kind": kind, "name": name}
    made: dict[str, object] = {"created_at": now, "created_by": by[:150]}
    with blobs.kept(project, path, found, now) as blob:
        changing["blob"] = blob
        row, new = Artifact.objects.update_or_create(
            project=project, sha256=found.sha256, defaults=changing, create_defaults=changing | made
        )
        if new:
            audit.record(by, "artifact.add", KIND, name, None, found.sha256, now, project)
    row.blob = blob
    return row


def check(project: Project, kind: str, name: str) -> None:
    """Raise Refused when no such artifact may be stored, whatever its bytes are."""
    if kind not in ArtifactKind.values:
        raise Refused("kind", said("kind must be one of {kinds}.", kinds=", ".join(ArtifactKind.values)))
    if not 0 < len(name.encode("utf-8", "replace")) <= 255 or _HIDDEN.search(name) or name in (".", ".."):
        raise Refused(
            "name",
            said("The name must be that of a file: 1 to 255 bytes, without slashes and control characters."),
        )
    if project.archived_at is not None:
        raise Refused(
            "project", said("Project {name} is archived: it stores nothing new.", name=project.name)
        )


def find_artifact(project: Project, sha256: str) -> Artifact | None:
    """The artifact of this project with these bytes. Another project's is not found."""
    if not SHA256.fullmatch(sha256):
        return None
    return Artifact.objects.filter(project=project, sha256=sha256).select_related("blob").first()


def of(project: Project) -> QuerySet[Artifact]:
    """The artifacts of a project, the newest first."""
    return Artifact.objects.filter(project=project).select_related("blob").order_by("-pk")


def open_artifact(row: Artifact, start: int = 0, end: int | None = None) -> Iterator[bytes]:
    """The bytes [start, end) of an artifact, in pieces."""
    return blobs.read(row.blob, start, end)


def delete_artifact(row: Artifact, by: str, now: datetime) -> None:
    """Delete an artifact. Its bytes stay while an object or a job needs them. In the caller's transaction."""
    blobs.release(row.blob, now)
    if Artifact.objects.filter(pk=row.pk).delete()[0]:
        audit.record(by, "artifact.delete", KIND, row.name, row.sha256, None, now, row.project)


def hold(what: Artifact | StoredObject, job: Job) -> None:
    """Keep the bytes until the job is deleted. In the caller's transaction. Raises Refused when they are gone."""
    blobs.hold(what.blob, job)
