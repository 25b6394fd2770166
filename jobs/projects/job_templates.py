"""Templates of jobs, of projects and of people: saved, listed, deleted. New jobs begin with one.

The caller has checked the permission and owns the transaction. A template has no values of secrets, because a canonical
document has none.
"""

from __future__ import annotations

import re
from datetime import datetime

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from agents.infra.refusals import Refused
from agents.infra.texts import said
from jobs.models import JobTemplate, Project
from jobs.projects import audit
from jobs.rules.spec.custom_job import CustomJob, to_document

KIND = "job template"
NAME = re.compile(r"[^\s/:](?:[^/:\x00-\x1f\x7f]{0,98}[^\s/:])?")
# Each of them; a person or a project with more has lost sight of them.
MAX_TEMPLATES = 200

Owner = Project | User


def of(owner: Owner) -> QuerySet[JobTemplate]:
    return JobTemplate.objects.filter(**_owned_by(owner)).order_by("name")


def visible(user: User, projects: list[Project]) -> QuerySet[JobTemplate]:
    """The person's own templates, and those of these projects."""
    rows = JobTemplate.objects.filter(Q(user=user) | Q(project__in=projects))
    return rows.select_related("project").order_by("project__name", "name")


def put(
    owner: Owner, name: str, job: CustomJob, location: str, actor: str, now: datetime
) -> tuple[JobTemplate, bool]:
    """Save a template, or replace the one with this name. Returns it, and whether it is new. Raises Refused."""
    if not NAME.fullmatch(name) or not name.isprintable():
        raise Refused(
            "name", said("The name of a template must be 1 to 100 printable characters without / and :.")
        )
    columns = {
        "document": to_document(job),
        "location_name": location[:63],
        "changed_at": now,
        "changed_by": actor[:150],
    }
    rows = of(owner).filter(name=name)
    changed = rows.update(**columns)
    if not changed:
        if of(owner).count() >= MAX_TEMPLATES:
            raise Refused(
                "name",
                said(
                    "There are {number} templates already. Delete one that is not used.", number=MAX_TEMPLATES
                ),
            )
        try:
            with transaction.atomic():
                JobTemplate.objects.create(**_owned_by(owner), name=name, made_at=now, **columns)
        except IntegrityError:
            # It was made at the same moment. The later document counts.
            changed = rows.update(**columns)
    _audit(owner, "template.change" if changed else "template.make", name, actor, now)
    return rows.get(), not changed


def remove(owner: Owner, name: str, actor: str, now: datetime) -> bool:
    """Delete a template. Returns whether there was one."""
    removed = of(owner).filter(name=name).delete()[0] > 0
    if removed:
        _audit(owner, "template.remove", name, actor, now)
    return removed


def _owned_by(owner: Owner) -> dict[str, Owner]:
    return {"project" if isinstance(owner, Project) else "user": owner}


def _audit(owner: Owner, what: str, name: str, actor: str, now: datetime) -> None:
    project = owner if isinstance(owner, Project) else None
    audit.record(actor, what, KIND, name, None, None, now, project)
