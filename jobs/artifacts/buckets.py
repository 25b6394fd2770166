"""Buckets of projects: made, listed, deleted when they are empty.

The caller has checked the permission and owns the transaction.
"""

from __future__ import annotations

from datetime import datetime

from django.db import IntegrityError, transaction
from django.db.models import ProtectedError

from agents.infra.refusals import Conflict, Exhausted, Refused
from agents.infra.texts import said
from jobs.models import Bucket, Project
from jobs.projects import audit
from jobs.rules import storage_names

KIND = "bucket"
# Each project. With more of them, names were meant to be prefixes of objects.
MAX_BUCKETS = 100


def create(project: Project, name: str, actor: str, now: datetime) -> Bucket:
    """A new bucket. Raises Refused for a name that none may have, Conflict for one that is taken."""
    problem = storage_names.bucket_problem(name)
    if problem:
        raise Refused("name", problem)
    if project.archived_at is not None:
        raise Refused(
            "project", said("Project {name} is archived: it stores nothing new.", name=project.name)
        )
    if Bucket.objects.filter(project=project).count() >= MAX_BUCKETS:
        raise Exhausted("name", said("There are {number} buckets already. Delete one.", number=MAX_BUCKETS))
    try:
        with transaction.atomic():
            row = Bucket.objects.create(name=name, project=project, created_at=now, created_by=actor[:150])
    except IntegrityError:
        raise Conflict("name", said("There is a bucket of this name already. Choose another name.")) from None
    audit.record(actor, "bucket.create", KIND, name, None, None, now, project)
    return row


def find(project: Project, name: str) -> Bucket | None:
    return Bucket.objects.filter(project=project, name=name).select_related("project").first()


def delete(bucket: Bucket, actor: str, now: datetime) -> None:
    """Delete an empty bucket. Raises Conflict while it has objects."""
    try:
        with transaction.atomic():
            Bucket.objects.filter(pk=bucket.pk).delete()
    except ProtectedError:
        raise Conflict(
            "name", said("Bucket {name} has objects. Delete them first.", name=bucket.name)
        ) from None
    audit.record(actor, "bucket.delete", KIND, bucket.name, None, None, now, bucket.project)
