"""Add, change and remove the targets of notifications."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Sequence
from datetime import datetime
from urllib.parse import urlsplit

from django.contrib.auth.models import User
from django.db import transaction

from agents.infra.refusals import Refused
from agents.infra.secrets import encrypt_fields
from agents.infra.texts import said
from jobs.models import NotificationTarget, Project
from jobs.models.notifications import Way
from jobs.projects import audit
from jobs.rules.notifications import EVENTS

MAX_TARGETS = 20


def add(
    owner: User | Project,
    way: str,
    address: str,
    events: Sequence[str],
    wait_hours: float,
    actor: str,
    now: datetime,
    language: str = "",
) -> tuple[NotificationTarget, str]:
    """Add a target. Returns its row and the secret that signs the messages of a webhook, which is never shown again."""
    of: dict[str, object] = {"project": owner} if isinstance(owner, Project) else {"user": owner}
    secret = f"whsec_{base64.b64encode(secrets.token_bytes(24)).decode()}" if way == Way.HOOK else ""
    with transaction.atomic():
        if NotificationTarget.objects.filter(**of).count() >= MAX_TARGETS:
            raise Refused(
                "address", said("There are {number} addresses already. Remove one first.", number=MAX_TARGETS)
            )
        row = NotificationTarget.objects.create(
            **of,
            way=way,
            sealed=encrypt_fields({"address": address, "secret": secret}),
            shown=masked(way, address),
            events=[event for event in EVENTS if event in events],
            wait_hours=wait_hours,
            # A project has many readers.
            language=language if isinstance(owner, User) else "",
            created_at=now,
            created_by=actor[:150],
            # The address of a webhook is a secret: who knows it may write there, so it needs no confirmation.
            confirmed_at=None if way == Way.MAIL else now,
        )
        _audit(row, "notice.add", None, audited(row), actor, now)
    return row, secret


def change(
    target: NotificationTarget, events: Sequence[str], wait_hours: float, actor: str, now: datetime
) -> None:
    with transaction.atomic():
        before = audited(target)
        target.events = [event for event in EVENTS if event in events]
        target.wait_hours = wait_hours
        target.save(update_fields=["events", "wait_hours"])
        if audited(target) != before:
            _audit(target, "notice.set", before, audited(target), actor, now)


def remove(target: NotificationTarget, actor: str, now: datetime) -> None:
    with transaction.atomic():
        _audit(target, "notice.remove", audited(target), None, actor, now)
        target.delete()


def audited(target: NotificationTarget) -> dict[str, object]:
    """What the audit stores of a target."""
    return {
        "way": target.way,
        "address": target.shown,
        "events": list(target.events),
        "wait_hours": target.wait_hours,
    }


def masked(way: str, address: str) -> str:
    """As much of the address as identifies it. A webhook's address is a password: pages show only its host."""
    if way == Way.MAIL:
        return address[:120]
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}/…{address[-4:] if len(parts.path) > 24 else ''}"[:120]


def _audit(
    row: NotificationTarget,
    what: str,
    before: object,
    after: object,
    actor: str,
    now: datetime,
) -> None:
    """Audit a change of a project's target. A person's own targets are private and not audited."""
    if row.project is not None:
        audit.record(actor, what, "project", row.project.name, before, after, now, row.project)
