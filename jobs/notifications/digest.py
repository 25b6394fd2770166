"""Digests: one letter a day or a week about a person's jobs, and about hosts with trouble for those who manage them.

A digest goes to the e-mail addresses that the person has confirmed, and to nothing else. When there is nothing to say,
nothing is sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import QuerySet

from agents.models import Host, HostStatus
from jobs.models import Job, Membership
from jobs.models.notifications import Way
from jobs.notifications import create
from jobs.rules.lifecycle.states import JobState

# At this hour in the person's time zone; a weekly one on Mondays.
HOUR = 7
# Of failed jobs, of waiting ones and of hosts, so many are named.
NAMED = 10
MAX_CAUSE = 200
# Hosts in these states work as they should, or nobody expects them to yet.
WELL = (HostStatus.NEW, HostStatus.CHECKING, HostStatus.UP)


class Period(StrEnum):
    DAILY = "daily"
    WEEKLY = "weekly"


LENGTH = {Period.DAILY: timedelta(days=1), Period.WEEKLY: timedelta(days=7)}


def next_due(period: Period, zone: str, now: datetime) -> datetime:
    """The next morning, or the next Monday's, in the time zone with this name; empty is UTC."""
    here = now.astimezone(ZoneInfo(zone or "UTC"))
    due = here.replace(hour=HOUR, minute=0, second=0, microsecond=0)
    days = 0 if due > here else 1
    if period is Period.WEEKLY:
        days += -(due + timedelta(days=days)).weekday() % 7
    return due + timedelta(days=days)


def send(user: User, period: Period, due: datetime, now: datetime) -> None:
    """Create the notifications of one digest: what happened since the one before."""
    since = due - LENGTH[period]
    parts = [part for part in (_about_jobs(user, since), _about_hosts() if user.is_superuser else "") if part]
    if not parts:
        return
    where = (
        f"{settings.TRAINYARD.url}/account/preferences" if settings.TRAINYARD.url else "Account → Preferences"
    )
    parts.append(f"You get this {period}. To change or stop it: {where}")
    create.create_for_person(
        user,
        key=f"digest:{due.isoformat()}",
        title=f"Trainyard: your {period} digest of {now:%Y-%m-%d}",
        text="\n\n".join(parts),
        url=f"{settings.TRAINYARD.url}/jobs/" if settings.TRAINYARD.url else "",
        now=now,
        only=Way.MAIL,
    )


def _about_jobs(user: User, since: datetime) -> str:
    jobs = Job.objects.filter(owner=user)
    if not user.is_superuser:
        jobs = jobs.filter(project__in=Membership.objects.filter(user=user).values("project"))
    ended = jobs.filter(ended_at__gt=since)
    counts = [
        (ended.filter(state=JobState.SUCCEEDED).count(), "succeeded"),
        (ended.filter(state=JobState.FAILED).count(), "failed"),
        (ended.filter(state=JobState.CANCELLED).count(), "cancelled"),
        (jobs.filter(state__in=(JobState.PENDING, JobState.RUNNING)).count(), "running now"),
        (jobs.filter(state=JobState.QUEUED).count(), "waiting now"),
    ]
    said = [f"{number} {word}" for number, word in counts if number]
    if not said:
        return ""
    head = f"Your jobs since {since:%Y-%m-%d %H:%M} UTC: {', '.join(said)}."
    failed = _named(ended.filter(state=JobState.FAILED).order_by("-ended_at"), "error_message")
    waiting = _named(jobs.filter(state=JobState.QUEUED).order_by("created_at"), "reason")
    return "\n\n".join([head, *_listed("Failed:", failed), *_listed("Waiting:", waiting)])


def _about_hosts() -> str:
    ill = Host.machines.exclude(status__in=WELL).order_by("status_since")
    lines = [
        f"{host.name}: {HostStatus(host.status).label}, since {host.status_since:%Y-%m-%d %H:%M} UTC"
        for host in ill[: NAMED + 1]
    ]
    return "\n\n".join(_listed("Hosts with trouble:", lines))


def _named(jobs: QuerySet[Job], why: str) -> list[str]:
    rows = jobs.values_list("pk", "display_name", why)[: NAMED + 1]
    return [f"{' '.join(name.split())} ({pk}): {str(cause)[:MAX_CAUSE]}" for pk, name, cause in rows]


def _listed(head: str, lines: Iterable[str]) -> list[str]:
    found = list(lines)
    if not found:
        return []
    shown = [f"- {line}" for line in found[:NAMED]]
    return ["\n".join([head, *shown, *(["- and more"] if len(found) > NAMED else [])])]
