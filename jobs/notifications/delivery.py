"""Choose the notifications that are due, claim each one for one sender, and record the result."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, Q, QuerySet, Window
from django.db.models.functions import RowNumber

from agents.infra import untrusted
from agents.infra.sql import Parameter, SelectStatement
from agents.infra.texts import said
from jobs.models import Notification, NotificationTarget, Transition
from jobs.models.notifications import Way
from jobs.rules.lifecycle import history_kinds
from jobs.rules.notifications import CONFIRMATION, EVENTS, TEST, delay_s
from jobs.wake import hints

# A sender that claims a notification and dies gives no answer: the notification is due again after this.
CLAIMED_FOR = timedelta(minutes=2)
KEPT_FOR = timedelta(days=30)
MAX_AT_ONCE = 500
MAX_OF_TARGET = 10
BY = {Way.MAIL: said("e-mail"), Way.SLACK: said("slack or compatible"), Way.HOOK: said("webhook")}


def _due_rows() -> QuerySet[Notification, tuple[int]]:
    rows = Notification.objects.filter(due_at__lte=Parameter("now"))
    rows = rows.exclude(target__paused_until__gt=Parameter("now"))
    place = Window(RowNumber(), partition_by="target", order_by=["due_at", "pk"])
    rows = rows.annotate(place=place).filter(place__lte=MAX_OF_TARGET).order_by("place", "due_at", "pk")
    return rows.values_list("pk")[:MAX_AT_ONCE]


_due = SelectStatement(_due_rows)


def send_due(now: datetime) -> None:
    """Ask a worker to send what is due. The caller does not wait for any receiver."""
    hints.notifications(due(now))


def due(now: datetime) -> list[int]:
    """The ids to send now, the oldest of each target first, so that one target with many does not delay the others."""
    return _due.column(now=now)


def owners(ids: Sequence[int]) -> dict[int, str]:
    """The owner of each notification: a person or a project."""
    rows = (
        Notification.objects.filter(pk__in=ids)
        .values_list("pk", "target__user", "target__project")
        .order_by()
    )
    return {pk: f"user {user}" if user else f"project {project}" for pk, user, project in rows}


def claim(notification_id: int, now: datetime) -> Notification | None:
    """Claim one notification for sending; None when another sender has it or it is not due.

    Its due time is moved first, so that a process that dies while sending loses nothing.
    """
    not_paused = Q(target__paused_until=None) | Q(target__paused_until__lte=now)
    free = Notification.objects.filter(not_paused, pk=notification_id, due_at__lte=now).values("pk")
    if not Notification.objects.filter(pk__in=free, due_at__lte=now).update(
        due_at=now + CLAIMED_FOR, tries=F("tries") + 1
    ):
        return None
    return Notification.objects.select_related("target", "job").get(pk=notification_id)


def record_result(notification: Notification, taken: bool, answer: str, final: bool, now: datetime) -> None:
    """Record what the receiver answered. The history of the job shows a notification that was sent or given up."""
    wait = None if taken or final else delay_s(notification.tries)
    changes: dict[str, object] = {"answer": untrusted.text(answer, 2000), "due_at": None}
    if taken:
        changes["sent_at"] = now
    elif wait is None or notification.event in (TEST, CONFIRMATION):
        changes["given_up_at"] = now
    else:
        changes["due_at"] = now + timedelta(seconds=wait)
    with transaction.atomic():
        if not Notification.objects.filter(
            pk=notification.pk, tries=notification.tries, due_at__isnull=False
        ).update(**changes):
            # Another sender claimed it after this one: the result of that sender counts.
            return
        paused_until = changes["due_at"] if not taken else None
        NotificationTarget.objects.filter(pk=notification.target_id).update(paused_until=paused_until)
        if notification.job is not None and changes["due_at"] is None:
            Transition.objects.create(**_history(notification, taken, now))


def _history(notification: Notification, taken: bool, now: datetime) -> dict[str, object]:
    target = notification.target
    job = notification.job
    who = job and (job.owner_name if target.user_id else said("project {name}", name=job.project.name))
    by, event = BY[Way(target.way)], EVENTS.get(notification.event, notification.event)
    cause = (
        said("{who} was notified by {way}: {event}.", who=who, way=by, event=event)
        if taken
        else said("{who} could not be notified by {way}: {event}.", who=who, way=by, event=event)
    )
    return {
        "job": job,
        "at": now,
        "kind": history_kinds.HistoryKind.NOTIFICATION,
        "subject": history_kinds.NOTIFIED,
        "to_state": "told" if taken else "not told",
        "attempt": notification.attempt,
        "cause": cause,
        "actor": "trainyard",
    }


def delete_old(now: datetime) -> None:
    """Delete the finished notifications that are older than KEPT_FOR."""
    Notification.objects.filter(due_at=None, made_at__lt=now - KEPT_FOR).delete()
