"""Targets of notices: added, changed and removed by those whose jobs they are about."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Sequence
from datetime import datetime
from urllib.parse import urlsplit

from django.contrib.auth.models import User
from django.db import transaction

from agents.infra.refusals import Refused
from agents.infra.secrets import encrypt
from jobs.models import NoticeTarget, Project
from jobs.models.notices import Way
from jobs.projects import audit
from jobs.rules.notifications import EVENTS

MAX_COUNT = 20


def add(
    owner: User | Project,
    way: str,
    address: str,
    events: Sequence[str],
    wait_hours: float,
    actor: str,
    now: datetime,
) -> tuple[NoticeTarget, str]:
    """The row, and the secret that a webhook's messages are signed with: told here and never again."""
    of: dict[str, object] = {"project": owner} if isinstance(owner, Project) else {"user": owner}
    secret = f"whsec_{base64.b64encode(secrets.token_bytes(24)).decode()}" if way == Way.HOOK else ""
    with transaction.atomic():
        if NoticeTarget.objects.filter(**of).count() >= MAX_COUNT:
            raise Refused("address", f"There are {MAX_COUNT} already. Remove one first.")
        row = NoticeTarget.objects.create(
            **of,
            way=way,
            sealed=encrypt({"address": address, "secret": secret}),
            shown=masked(way, address),
            events=[event for event in EVENTS if event in events],
            wait_hours=wait_hours,
            created_at=now,
            created_by=actor[:150],
            # The address of a hook is a secret that only whoever may write there knows.
            proved_at=None if way == Way.MAIL else now,
        )
        _audit(row, "notice.add", None, told(row), actor, now)
    return row, secret


def change(target: NoticeTarget, events: Sequence[str], wait_hours: float, actor: str, now: datetime) -> None:
    with transaction.atomic():
        before = told(target)
        target.events = [event for event in EVENTS if event in events]
        target.wait_hours = wait_hours
        target.save(update_fields=["events", "wait_hours"])
        if told(target) != before:
            _audit(target, "notice.set", before, told(target), actor, now)


def remove(target: NoticeTarget, actor: str, now: datetime) -> None:
    with transaction.atomic():
        _audit(target, "notice.remove", told(target), None, actor, now)
        target.delete()


def told(target: NoticeTarget) -> dict[str, object]:
    return {
        "way": target.way,
        "address": target.shown,
        "events": list(target.events),
        "wait_hours": target.wait_hours,
    }


def masked(way: str, address: str) -> str:
    """Enough to know it by. A hook's address is a password: only where it leads is shown."""
    if way == Way.MAIL:
        return address[:120]
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}/…{address[-4:] if len(parts.path) > 24 else ''}"[:120]


def _audit(
    row: NoticeTarget,
    what: str,
    before: object,
    after: object,
    actor: str,
    now: datetime,
) -> None:
    """A person's own are that person's own matter."""
    if row.project is not None:
        audit.record(actor, what, "project", row.project.name, before, after, now, row.project)
