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

from agents.infra.texts import join, said
from agents.models import Host, HostStatus
from jobs.models import Job, Membership, TuningJob
from jobs.models.notifications import Way
from jobs.notifications import create
from jobs.rules.lifecycle.states import JobState
from jobs.rules.notifications import EVENTS

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
    about = (
        _about_jobs(user, since),
        _about_studies(user, since),
        _about_hosts() if user.is_superuser else "",
    )
    parts = [part for part in about if part]
    if not parts:
        return
    base = settings.TRAINYARD.url
    where = f"{base}/account/preferences" if base else said("Account → Preferences")
    parts.append(
        said("You get this daily. To change or stop it: {where}", where=where)
        if period is Period.DAILY
        else said("You get this weekly. To change or stop it: {where}", where=where)
    )
    create.create_for_person(
        user,
        key=f"digest:{due.isoformat()}",
        title=said("Trainyard: your daily digest of {date}", date=f"{now:%Y-%m-%d}")
        if period is Period.DAILY
        else said("Trainyard: your weekly digest of {date}", date=f"{now:%Y-%m-%d}"),
        text=join("\n\n", parts),
        url=f"{settings.TRAINYARD.url}/jobs/" if settings.TRAINYARD.url else "",
        now=now,
        only=Way.MAIL,
    )


def _about_jobs(user: User, since: datetime) -> str:
    jobs = Job.objects.filter(owner=user)
    if not user.is_superuser:
        jobs = jobs.filter(project__in=Membership.objects.filter(user=user).values("project"))
    ended = jobs.filter(ended_at__gt=since)
    active = jobs.filter(state__in=(JobState.PENDING, JobState.RUNNING))
    counts = [
        (number := ended.filter(state=JobState.SUCCEEDED).count())
        and said("{number} succeeded", number=number),
        (number := ended.filter(state=JobState.FAILED).count()) and said("{number} failed", number=number),
        (number := ended.filter(state=JobState.CANCELLED).count())
        and said("{number} cancelled", number=number),
        (number := active.count()) and said("{number} running now", number=number),
        (number := jobs.filter(state=JobState.QUEUED).count())
        and said("{number} waiting now", number=number),
    ]
    told = [each for each in counts if each]
    if not told:
        return ""
    time = f"{since:%Y-%m-%d %H:%M}"
    head = said("Your jobs since {time} UTC: {counts}.", time=time, counts=join(", ", told))
    failed = _named(ended.filter(state=JobState.FAILED).order_by("-ended_at"), "error_message")
    waiting = _named(jobs.filter(state=JobState.QUEUED).order_by("created_at"), "reason")
    return join("\n\n", [head, *_listed(said("Failed:"), failed), *_listed(said("Waiting:"), waiting)])


def _about_studies(user: User, since: datetime) -> str:
    """Studies of the person that have ended."""
    studies = TuningJob.objects.filter(owner=user, ended_at__gt=since)
    if not user.is_superuser:
        studies = studies.filter(project__in=Membership.objects.filter(user=user).values("project"))
    rows = studies.order_by("-ended_at").values_list("pk", "display_name", "state")[: NAMED + 1]
    lines = [
        said("{name} ({id}): {what}", name=" ".join(name.split()), id=pk, what=EVENTS[state.lower()])
        for pk, name, state in rows
    ]
    return join("\n\n", _listed(said("Studies that have ended:"), lines))


def _about_hosts() -> str:
    ill = Host.machines.exclude(status__in=WELL).order_by("status_since")
    lines = [
        said(
            "{host}: {status}, since {time} UTC",
            host=host.name,
            status=HostStatus(host.status).label,
            time=f"{host.status_since:%Y-%m-%d %H:%M}",
        )
        for host in ill[: NAMED + 1]
    ]
    return join("\n\n", _listed(said("Hosts with trouble:"), lines))


def _named(jobs: QuerySet[Job], why: str) -> list[str]:
    rows = jobs.values_list("pk", "display_name", why)[: NAMED + 1]
    return [join(" ", [f"{' '.join(name.split())} ({pk}):", _short(cause)]) for pk, name, cause in rows]


def _short(cause: str) -> str:
    """A long sentence loses its end, and with it its other languages."""
    return cause if len(cause) <= MAX_CAUSE else cause[:MAX_CAUSE]


def _listed(head: str, lines: Iterable[str]) -> list[str]:
    found = list(lines)
    if not found:
        return []
    shown = [join("", ["- ", line]) for line in found[:NAMED]]
    return [join("\n", [head, *shown, *([said("- and more")] if len(found) > NAMED else [])])]
