"""Projects, their quotas, and what was used."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import transaction
from django.utils import timezone

from agents.infra import refusals
from console.commands import COMMAND_LINE, CommandRefused, project_named
from console.commands.people import find_user
from console.presenters.projects import usage_csv
from console.runtime import database
from jobs.models import Project
from jobs.projects import projects, quotas, usage
from jobs.projects.quotas import QuotaTarget
from jobs.rules.scheduling.quota import Limits, Metric
from jobs.rules.scheduling.usage_months import month_named, month_of


def add_project(words: argparse.Namespace) -> int:
    now = timezone.now()
    database.prepare(now)
    with said(), transaction.atomic():
        projects.create(words.name, words.title, COMMAND_LINE, now)
    print(f"Added project {words.name}.")
    return 0


def change_project(words: argparse.Namespace) -> int:
    now = timezone.now()
    database.prepare(now)
    asked = {
        "name": words.rename,
        "title": words.title,
        "weight": words.weight,
        "highest_priority": words.highest_priority,
    }
    columns: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    with said(), transaction.atomic():
        row = projects.change(project_named(words.name), COMMAND_LINE, now, **columns)
    print(
        f"Project {row.name}: title {row.title!r}, weight {row.weight:g}, priority {row.highest_priority} at most."
    )
    return 0


def archive_project(words: argparse.Namespace) -> int:
    now = timezone.now()
    database.prepare(now)
    with transaction.atomic():
        (projects.restore if words.undo else projects.archive)(project_named(words.name), COMMAND_LINE, now)
    print(f"Project {words.name} {'takes jobs again' if words.undo else 'takes no jobs any more'}.")
    return 0


def list_projects(words: argparse.Namespace) -> int:
    database.prepare(timezone.now())
    for row in Project.objects.order_by("name"):
        print(
            f"{row.name}\t{'archived' if row.archived_at else 'active'}\tweight {row.weight:g}\t{row.title}"
        )
    return 0


def set_quota(words: argparse.Namespace) -> int:
    """`what` is an accelerator type, or running, queued, gpu-hours."""
    now = timezone.now()
    database.prepare(now)
    others = {"running": Metric.RUNNING, "queued": Metric.QUEUED, "gpu-hours": Metric.GPU_HOURS}
    metric = others.get(words.what, Metric.GPUS)
    kind = words.what if metric == Metric.GPUS else ""
    try:
        limit = None if words.limit == "none" else float(words.limit)
    except ValueError:
        raise CommandRefused(f"{words.limit!r} is not a number; say none for no limit.") from None
    with said(), transaction.atomic():
        target = target_of(words)
        quotas.set_limit(target, metric, kind, limit, COMMAND_LINE, now)
    print(f"{target.words}: {words.what} {'without a limit' if limit is None else f'at most {limit:g}'}.")
    return 0


def list_quotas(words: argparse.Namespace) -> int:
    database.prepare(timezone.now())
    print_limits(quotas.limits_of(target_of(words)))
    return 0


def report_usage(words: argparse.Namespace) -> int:
    """The month as CSV on stdout."""
    now = timezone.now()
    database.prepare(now)
    month = month_named(words.month) if words.month else month_of(now)
    if month is None:
        raise CommandRefused(f"{words.month!r} is not a month; write it as 2026-11.")
    rows = (
        Project.objects.filter(name=project_named(words.project).name)
        if words.project
        else Project.objects.all()
    )
    names = dict(rows.values_list("pk", "name"))
    usage_csv.write(sys.stdout, month, usage.report_by_job(month, names, now), names)
    return 0


def target_of(words: argparse.Namespace) -> QuotaTarget:
    project = None if words.new_projects else project_named(words.project)
    if project is None and words.member:
        raise CommandRefused("A new project has no members yet: say --each-member, or name a project.")
    user = find_user(words.member) if words.member else None
    return QuotaTarget(project, each=words.each_member, user=user)


def print_limits(limits: Limits) -> None:
    others = {"running": limits.running, "queued": limits.queued, "gpu-hours": limits.gpu_hours}
    for what, limit in {**limits.gpus, **others}.items():
        if limit is not None:
            print(f"{what}\t{limit:g}")


@contextmanager
def said() -> Iterator[None]:
    """What a service refuses is said on stderr."""
    try:
        yield
    except refusals.Refused as problem:
        raise CommandRefused(problem.message) from problem
