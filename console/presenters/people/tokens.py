"""The tokens of a person, as their account shows them."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.contrib.auth.models import User

from console.auth import tokens
from console.models import ApiToken

# An expired token stays on the page for so long, so that people see why a script is refused.
SHOWN_AFTER_END = timedelta(days=30)


def context(user: User, now: datetime) -> dict[str, object]:
    """The tokens, and which of them end soon."""
    shown = ApiToken.objects.filter(user=user, revoked_at=None, expires_at__gt=now - SHOWN_AFTER_END)
    rows = list(shown.select_related("project"))
    return {"tokens": rows, "now": now, "soon": {row.pk for row in rows if tokens.ends_soon(row, now)}}


def stamp(user: User, now: datetime) -> list[object]:
    """What changes whenever that list changes; the last use by the minute."""
    shown = ApiToken.objects.filter(user=user, revoked_at=None, expires_at__gt=now - SHOWN_AFTER_END)
    rows = list(shown.select_related("project"))
    return [
        (
            row.pk,
            row.project and row.project.name,
            row.last_used_at and row.last_used_at.replace(second=0, microsecond=0),
            row.expires_at <= now,
            tokens.ends_soon(row, now),
        )
        for row in rows
    ]
