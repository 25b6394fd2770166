"""The usage report of one month."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.urls import reverse
from django.utils.translation import gettext as _

from agents.infra.shared_answers import SharedAnswers
from console.auth import access
from jobs.models import Project
from jobs.projects import usage
from jobs.projects.usage import UsageLine
from jobs.rules.scheduling.usage_months import begin, following, month_named, month_of, previous

# What runs now is added to the sums of a month for each report: many people look at the same one.
KEPT = timedelta(seconds=10)
_recent: SharedAnswers[tuple[date, tuple[int, ...]], list[UsageLine]] = SharedAnswers(KEPT, 100)


@dataclass(frozen=True, slots=True)
class Sum:
    name: str
    gpu_hours: float
    cpu_hours: float


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    column: str
    sums: tuple[Sum, ...]

    @property
    def most(self) -> float:
        return max([one.gpu_hours for one in self.sums], default=0) or 1.0


@dataclass(frozen=True, slots=True)
class Report:
    month: date
    now: datetime
    current: bool
    project: str
    projects: tuple[str, ...]
    gpu_hours: float
    cpu_hours: float
    tables: tuple[Table, ...]
    earlier: str
    later: str
    csv: str


def recent_lines(month: date, projects: Iterable[int], now: datetime) -> list[UsageLine]:
    """Return the lines of a month's report, at most KEPT old."""
    ids = tuple(projects)
    return _recent.get((month, ids), lambda: usage.report(month, ids, now))


def names_of(user: User, only: Project | None) -> dict[int, str]:
    rows = [only] if only else access.visible(user, Project.objects.order_by("name"))
    return {row.pk: row.name for row in rows}


def asked_month(text: str, now: datetime) -> date | None:
    """The month that an address asks for; this one, if it says none; None for what is no month."""
    return month_named(text) if text else month_of(now)


def report(user: User, only: Project | None, month: date, now: datetime) -> Report:
    names = names_of(user, only)
    lines = recent_lines(month, names, now)
    by_person = Table(_("By person"), _("Person"), sums(lines, lambda line: line.owner_name))
    by_type = Table(
        _("By GPU type"), _("GPU type"), sums(lines, lambda line: line.accelerator_type or _("CPUs only"))
    )
    by_project = Table(_("By project"), _("Project"), sums(lines, lambda line: names[line.project]))
    named = only.name if only else ""
    later = following(month)
    return Report(
        month=month,
        now=now,
        current=month == month_of(now),
        project=named,
        projects=tuple(names_of(user, None).values()),
        gpu_hours=sum(line.gpu_seconds for line in lines) / 3600,
        cpu_hours=sum(line.cpu_seconds for line in lines) / 3600,
        tables=(*(() if only else (by_project,)), by_person, by_type),
        earlier=address("usage", previous(month), named),
        later=address("usage", later, named) if begin(later) <= now else "",
        csv=address("usage-csv", month, named),
    )


def sums(lines: Iterable[UsageLine], key: Callable[[UsageLine], str]) -> tuple[Sum, ...]:
    """Return the sums by key, the largest first."""
    found: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for line in lines:
        found[key(line)][0] += line.gpu_seconds / 3600
        found[key(line)][1] += line.cpu_seconds / 3600
    order = sorted(found.items(), key=lambda one: (-one[1][0], -one[1][1], one[0]))
    return tuple(Sum(name, *figures) for name, figures in order)


def address(name: str, month: date, project: str) -> str:
    asked = {"month": f"{month:%Y-%m}", **({"project": project} if project else {})}
    return f"{reverse(name)}?{urlencode(asked)}"
