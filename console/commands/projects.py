"""Projects, their quotas and their usage."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.db import transaction
from django.utils import timezone

from agents.infra import refusals
from console.commands import COMMAND_LINE, CommandRefused, project_named
from console.commands.people import find_user
from console.presenters.projects import usage_csv
from console.runtime import database_setup
from jobs.artifacts import expiry, room
from jobs.models import Bucket, Project
from jobs.projects import log_storage, projects, quotas, usage
from jobs.projects.quotas import QuotaTarget
from jobs.rules.scheduling.quota import GB, Limits, Metric
from jobs.rules.scheduling.usage_months import month_named, month_of


def add_project(args: argparse.Namespace) -> int:
    database_setup.prepare()
    now = timezone.now()
    with refusals_reported(), transaction.atomic():
        projects.create(args.name, args.title, COMMAND_LINE, now)
    print(f"Added project {args.name}.")
    return 0


def change_project(args: argparse.Namespace) -> int:
    database_setup.prepare()
    now = timezone.now()
    asked = {
        "name": args.rename,
        "title": args.title,
        "weight": args.weight,
        "highest_priority": args.highest_priority,
    }
    columns: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    with refusals_reported(), transaction.atomic():
        row = projects.change(project_named(args.name), COMMAND_LINE, now, **columns)
    print(
        f"Project {row.name}: title {row.title!r}, weight {row.weight:g}, priority {row.highest_priority} at most."
    )
    return 0


def archive_project(args: argparse.Namespace) -> int:
    database_setup.prepare()
    now = timezone.now()
    with transaction.atomic():
        (projects.restore if args.undo else projects.archive)(project_named(args.name), COMMAND_LINE, now)
    print(f"Project {args.name} {'takes jobs again' if args.undo else 'takes no jobs any more'}.")
    return 0


def list_projects(args: argparse.Namespace) -> int:
    database_setup.prepare()
    for row in Project.objects.order_by("name"):
        print(
            f"{row.name}\t{'archived' if row.archived_at else 'active'}\tweight {row.weight:g}\t{row.title}"
        )
    return 0


def set_quota(args: argparse.Namespace) -> int:
    """Set a limit. `what` is an accelerator type, or running, queued, gpu-hours, log-gb, storage-gb."""
    database_setup.prepare()
    now = timezone.now()
    others = {
        "running": Metric.RUNNING,
        "queued": Metric.QUEUED,
        "gpu-hours": Metric.GPU_HOURS,
        "log-gb": Metric.LOG_GB,
        "storage-gb": Metric.STORAGE_GB,
    }
    metric = others.get(args.what, Metric.GPUS)
    kind = args.what if metric == Metric.GPUS else ""
    try:
        limit = None if args.limit == "none" else float(args.limit)
    except ValueError:
        raise CommandRefused(f"{args.limit!r} is not a number; say none for no limit.") from None
    with refusals_reported(), transaction.atomic():
        target = quota_target(args)
        quotas.set_limit(target, metric, kind, limit, COMMAND_LINE, now)
    print(f"{target.label}: {args.what} {'without a limit' if limit is None else f'at most {limit:g}'}.")
    return 0


def keep_objects(args: argparse.Namespace) -> int:
    """Let a bucket delete its objects after so many days."""
    database_setup.prepare()
    if args.days != "none" and not args.days.isdecimal():
        raise CommandRefused(f"{args.days!r} is not a number of days; say none to keep objects for ever.")
    days = None if args.days == "none" else int(args.days)
    row = Bucket.objects.filter(name=args.name).select_related("project").first()
    if row is None:
        raise CommandRefused(f"There is no bucket {args.name}.")
    with refusals_reported(), transaction.atomic():
        expiry.set_rule(row, days, COMMAND_LINE, timezone.now())
    print(f"Bucket {row.name} keeps objects {'for ever' if days is None else f'for {days} days'}.")
    if days and (why := expiry.waits(timezone.now())):
        print(f"Nothing is deleted by its age at this moment. {why}")
    return 0


def list_quotas(args: argparse.Namespace) -> int:
    database_setup.prepare()
    target = quota_target(args)
    whole = target.project and not target.each and not target.user
    print_limits(quotas.limits_of(target), used_by(target.project) if whole and target.project else {})
    for warning in (
        (log_storage.warning(target.project), room.warning(target.project)) if target.project else ()
    ):
        if warning:
            print(warning, file=sys.stderr)
    return 0


def report_usage(args: argparse.Namespace) -> int:
    """Print the usage of a month as CSV."""
    database_setup.prepare()
    now = timezone.now()
    month = month_named(args.month) if args.month else month_of(now)
    if month is None:
        raise CommandRefused(f"{args.month!r} is not a month; write it as 2026-11.")
    rows = (
        Project.objects.filter(name=project_named(args.project).name)
        if args.project
        else Project.objects.all()
    )
    names = dict(rows.values_list("pk", "name"))
    sys.stdout.writelines(usage_csv.csv_parts(month, usage.report_by_job(month, names, now), names))
    return 0


def quota_target(args: argparse.Namespace) -> QuotaTarget:
    project = None if args.new_projects else project_named(args.project)
    if project is None and args.member:
        raise CommandRefused(
            "A project that is made later has no members yet: use --each-member instead of --member, or name a project."
        )
    user = find_user(args.member) if args.member else None
    return QuotaTarget(project, each=args.each_member, user=user)


def used_by(project: Project) -> dict[str, float]:
    """What the project uses of each limit now."""
    use, _ = quotas.use_of(project, timezone.now())
    return {
        **use.gpus,
        "running": use.running,
        "queued": sum(quotas.queued(project).values()),
        "gpu-hours": use.gpu_hours,
        "log-gb": quotas.stored_log_bytes(project) / GB,
        "storage-gb": room.stored_bytes([project.pk]).get(project.pk, 0) / GB,
    }


def print_limits(limits: Limits, used: Mapping[str, float]) -> None:
    """A line for each limit: its name, the limit, and for a project what it uses of it."""
    others = {
        "running": limits.running,
        "queued": limits.queued,
        "gpu-hours": limits.gpu_hours,
        "log-gb": limits.log_gb,
        "storage-gb": limits.storage_gb,
    }
    for what, limit in {**limits.gpus, **others}.items():
        if limit is not None:
            print(
                f"{what}\t{limit:g}"
                + (f"\tused {used.get(what, 0):.3f}".rstrip("0").rstrip(".") if used else "")
            )


@contextmanager
def refusals_reported() -> Iterator[None]:
    """Turn the refusal of a service into one of the command, which is printed on stderr."""
    try:
        yield
    except refusals.Refused as problem:
        raise CommandRefused(problem.message) from problem
