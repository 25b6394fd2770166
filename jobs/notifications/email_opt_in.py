"""The opt-in of e-mail addresses: an address gets a letter with a one-time link, and nothing else before it confirms.

The link is in the letter only: the person who typed the address in must not see it. Until the letter is sent, the
link is stored with the address, encrypted. A link that somebody follows is compared with a stored digest.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from agents.infra.refusals import Exhausted, Refused
from agents.infra.secrets import decrypt_fields, encrypt_fields
from agents.infra.texts import said
from jobs.models import Notification, NotificationTarget, Tick
from jobs.models.notifications import Way
from jobs.notifications import targets
from jobs.projects import audit
from jobs.rules.notifications import CONFIRMATION

LINK_LASTS = timedelta(days=7)
DAY = timedelta(days=1)
# How many of these letters one person or project may cause in a day: the addresses did not ask for them.
MAX_LETTERS_A_DAY = 20
OWNER = "its owner"


def send_letter(target: NotificationTarget, base: str, actor: str, now: datetime) -> None:
    """Send a letter with a new link. Older links stop working.

    `base` is the address at which people reach this deployment, for one without TRAINYARD_URL.
    """
    if target.confirmed_at is not None or target.way != Way.MAIL:
        raise Refused("address", said("{address} is confirmed already.", address=target.shown))
    token = secrets.token_urlsafe(32)
    link = f"{settings.TRAINYARD.url or base.rstrip('/')}/notified/{token}"
    with transaction.atomic():
        _count_letter(target, now)
        target.sealed = encrypt_fields({**decrypt_fields(target.sealed), "link": link})
        target.confirmation_digest, target.confirmation_sent_at = _digest(token), now
        target.save(update_fields=["sealed", "confirmation_digest", "confirmation_sent_at"])
        Notification.objects.filter(target=target, event=CONFIRMATION, due_at__isnull=False).delete()
        key = f"{CONFIRMATION}:{now.isoformat()}"
        Notification.objects.create(
            target=target, key=key, event=CONFIRMATION, text=_letter(target, actor), made_at=now, due_at=now
        )


def target_of_link(token: str, now: datetime) -> NotificationTarget | None:
    """The target that this link confirms; None when the link is used, replaced or too old."""
    rows = NotificationTarget.objects.select_related("user", "project")
    return rows.filter(confirmation_digest=_digest(token), confirmation_sent_at__gt=now - LINK_LASTS).first()


def accept(target: NotificationTarget, now: datetime) -> None:
    _confirm(target, OWNER, now)


def refuse(target: NotificationTarget, now: datetime) -> None:
    """The owner of the address wants no notifications: remove the target."""
    targets.remove(target, OWNER, now)


def vouch(target: NotificationTarget, actor: str, now: datetime) -> None:
    """Confirm an address in its owner's place, for an admin of the deployment who knows whose it is."""
    with transaction.atomic():
        if not _confirm(target, actor, now):
            raise Refused("address", said("{address} is confirmed already.", address=target.shown))
        kind = "project" if target.project else "user"
        subject = target.project.name if target.project else str(target.user)
        audit.record(actor, "notice.vouch", kind, subject, None, targets.audited(target), now, target.project)


def _confirm(target: NotificationTarget, by: str, now: datetime) -> bool:
    sealed = {name: value for name, value in decrypt_fields(target.sealed).items() if name != "link"}
    row = NotificationTarget.objects.filter(
        pk=target.pk, confirmed_at=None, confirmation_digest=target.confirmation_digest
    )
    with transaction.atomic():
        if not row.update(
            confirmed_at=now, confirmed_by=by[:150], confirmation_digest="", sealed=encrypt_fields(sealed)
        ):
            return False
        Notification.objects.filter(target=target, event=CONFIRMATION, due_at__isnull=False).delete()
    return True


def _count_letter(target: NotificationTarget, now: datetime) -> None:
    whose = f"u{target.user_id}" if target.user_id else f"p{target.project_id}"
    Tick.objects.get_or_create(name=f"confirmations-{whose}", defaults={"at": now})
    row = Tick.objects.select_for_update().get(name=f"confirmations-{whose}")
    if now - row.at >= DAY:
        row.at, row.serial = now, 0
    if row.serial >= MAX_LETTERS_A_DAY:
        raise Exhausted(
            "address",
            said(
                "{number} confirmation letters were sent in a day. Try again tomorrow.",
                number=MAX_LETTERS_A_DAY,
            ),
        )
    row.serial += 1
    row.save(update_fields=["at", "serial"])


def _letter(target: NotificationTarget, actor: str) -> dict[str, object]:
    about = (
        said("every job of the project {project}", project=target.project.name)
        if target.project
        else said("the jobs of {person}", person=target.user)
    )
    text = said(
        "{person} wants Trainyard to notify this address of {what}. If you want that, follow this link and confirm; it "
        "works once, for {days} days. If not, do nothing: nothing else is sent to you.",
        person=actor,
        what=about,
        days=LINK_LASTS.days,
    )
    return {
        "title": said("Trainyard: do you want notifications at this address?"),
        "text": text,
        "url": "",
        "data": {},
    }


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
