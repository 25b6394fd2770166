"""Create, change, archive and restore projects. Each change is audited. The caller has checked the permission."""

from __future__ import annotations

import math
import re
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from agents.infra.refusals import Refused
from agents.infra.texts import said
from jobs.models import Project
from jobs.projects import audit, quotas
from jobs.rules.scheduling.order import PRIORITIES
from jobs.wake import announce, hints

NAME = re.compile(r"[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
# Names that are page addresses in the place of a project's name.
RESERVED_NAMES = frozenset({"new"})
MIN_WEIGHT, MAX_WEIGHT = 0.01, 1_000_000
MAX_TITLE = 100
CHANGEABLE = ("name", "title", "weight", "highest_priority", "record_shells")


def create(name: str, title: str, actor: str, now: datetime) -> Project:
    """Create a project with the default quotas and without members."""
    _check_name(name)
    _check_title(title)
    try:
        with transaction.atomic():
            project = Project.objects.create(name=name, title=title, created_at=now)
    except IntegrityError:
        raise _in_use(name) from None
    quotas.give_defaults(project)
    audit.record(actor, "project.create", "project", name, None, _audited(project), now, project)
    return project


def change(project: Project, actor: str, now: datetime, **columns: Any) -> Project:
    """Change the given ones of `CHANGEABLE`. A new name changes the page addresses; jobs keep their priority."""
    row = Project.objects.select_for_update().get(pk=project.pk)
    before = _audited(row)
    if "name" in columns and columns["name"] != row.name:
        _check_name(columns["name"])
    if "title" in columns:
        _check_title(columns["title"])
    if "weight" in columns:
        _check_weight(columns["weight"])
    if "highest_priority" in columns:
        _check_priority(columns["highest_priority"])
    for name in columns.keys() & set(CHANGEABLE):
        setattr(row, name, columns[name])
    try:
        with transaction.atomic():
            row.save(update_fields=CHANGEABLE)
    except IntegrityError:
        raise _in_use(row.name) from None
    if _audited(row) != before:
        audit.record(actor, "project.change", "project", row.name, before, _audited(row), now, row)
        announce.hints([f"jobs:{before['name']}", f"jobs:{row.name}"])
        hints.schedule()
    return row


def archive(project: Project, actor: str, now: datetime) -> None:
    """Archive a project: it takes no new jobs, its jobs go on, and everything in it can still be read."""
    if Project.objects.filter(pk=project.pk, archived_at=None).update(archived_at=now):
        audit.record(actor, "project.archive", "project", project.name, None, None, now, project)


def restore(project: Project, actor: str, now: datetime) -> None:
    if Project.objects.filter(pk=project.pk, archived_at__isnull=False).update(archived_at=None):
        audit.record(actor, "project.restore", "project", project.name, None, None, now, project)


def _audited(project: Project) -> dict[str, Any]:
    return {name: getattr(project, name) for name in CHANGEABLE}


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise Refused(
            "name",
            said(
                "A project's name has 1 to 63 of a-z, 0-9 and -, begins with a letter and does not end with -."
            ),
        )
    if name in RESERVED_NAMES:
        raise _in_use(name)


def _in_use(name: str) -> Refused:
    return Refused("name", said("The name {name} is taken. Choose another.", name=name))


def _check_title(title: str) -> None:
    if len(title) > MAX_TITLE or not title.isprintable():
        raise Refused("title", said("A title has at most {most} characters in one line.", most=MAX_TITLE))


def _check_weight(weight: float) -> None:
    if not math.isfinite(weight) or not MIN_WEIGHT <= weight <= MAX_WEIGHT:
        raise Refused(
            "weight",
            said(
                "The weight must be a number from {least} to {most}; 1 is usual.",
                least=MIN_WEIGHT,
                most=MAX_WEIGHT,
            ),
        )


def _check_priority(priority: str) -> None:
    if priority not in PRIORITIES:
        raise Refused(
            "highest_priority",
            said("The highest priority must be {priorities}.", priorities=", ".join(PRIORITIES)),
        )
