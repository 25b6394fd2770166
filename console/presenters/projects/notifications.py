"""The targets of notifications and the log of what was sent, as frozen values for pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.urls import reverse
from django.utils.translation import gettext, gettext_noop
from django.utils.translation import gettext as _

from agents.infra.sentences import shown
from console.forms.notifications import Events
from jobs.models import Notification, NotificationTarget, Project
from jobs.rules.notifications import ACCOUNT, CONFIRMATION, EVENTS, TEST

SHOWN = 30
OTHER = {
    TEST: gettext_noop("a test"),
    CONFIRMATION: gettext_noop("the link"),
    ACCOUNT: gettext_noop("about your account"),
}


@dataclass(frozen=True, slots=True)
class TargetLine:
    id: int
    way: str
    shown: str
    events: tuple[str, ...]
    confirmed: bool
    asked_at: datetime | None
    form: Events


@dataclass(frozen=True, slots=True)
class NotificationLine:
    made_at: datetime
    what: str
    job: str
    url: str
    to: str
    tone: str
    word: str
    icon: str
    tries: int
    due_at: datetime | None
    answer: str


@dataclass(frozen=True, slots=True)
class Log:
    lines: tuple[NotificationLine, ...]
    waiting: bool


def lines(owner: User | Project, changed: Mapping[int, Events]) -> tuple[TargetLine, ...]:
    return tuple(
        TargetLine(
            row.pk,
            gettext(row.get_way_display()),
            row.shown,
            tuple(gettext(EVENTS[event]) for event in row.events if event in EVENTS),
            row.confirmed_at is not None,
            row.confirmation_sent_at,
            changed.get(row.pk)
            or Events(initial={"events": row.events, "wait_hours": row.wait_hours}, prefix=f"t{row.pk}"),
        )
        for row in of(owner)
    )


def address(owner: User | Project) -> str:
    """The address of the page of these notifications."""
    if isinstance(owner, Project):
        return reverse("project-notifications", args=[owner.name])
    return reverse("notifications")


def log(owner: User | Project) -> Log:
    rows = (
        Notification.objects.filter(target__in=of(owner))
        .select_related("target", "job")
        .order_by("-pk")[:SHOWN]
    )
    found = tuple(_line(row) for row in rows)
    return Log(found, any(line.due_at for line in found))


def of(owner: User | Project) -> QuerySet[NotificationTarget]:
    if isinstance(owner, Project):
        return NotificationTarget.objects.filter(project=owner)
    return NotificationTarget.objects.filter(user=owner)


def _line(row: Notification) -> NotificationLine:
    if row.sent_at:
        tone, word, icon = "good", _("Told"), "tick"
    elif row.given_up_at:
        tone, word, icon = "bad", _("Given up"), "cross"
    else:
        tone, word, icon = "wait", _("On its way") if row.tries < 2 else _("Tried again"), "hourglass"
    return NotificationLine(
        made_at=row.made_at,
        what=gettext(OTHER.get(row.event) or EVENTS.get(row.event, row.event)),
        job=row.job.display_name if row.job else "",
        url=reverse("job", args=[row.job.pk]) if row.job and row.job.deleted_at is None else "",
        to=row.target.shown,
        tone=tone,
        word=word,
        icon=icon,
        tries=row.tries,
        due_at=row.due_at,
        answer=shown(row.answer),
    )
