"""The sessions of a person: listed for their owner, ended one by one or all at once. Each end is in the audit.

A session is named by the beginning of its stored key, which is a digest: the key itself would let whoever reads it in.
"""

from __future__ import annotations

from datetime import datetime

from django.contrib.auth.models import User
from django.db.models import F

from console.auth import sessions, tokens
from console.models import Session
from jobs.projects import audit

ID_LETTERS = 16


def id_of(row: Session) -> str:
    return row.session_key[:ID_LETTERS]


def of(user: User, now: datetime) -> list[Session]:
    """The sessions that hold, the one that was used last first."""
    rows = Session.objects.filter(user=user, expire_date__gt=now)
    return list(rows.order_by(F("seen_at").desc(nulls_last=True), "pk"))


def end(user: User, wanted: str, actor: str, now: datetime) -> bool:
    """End one session. Returns False when the person has no such session."""
    row = next((one for one in of(user, now) if id_of(one) == wanted), None)
    if row is None:
        return False
    sessions.end(row, now)
    before = {"from": row.address, "began": row.made_at.isoformat(timespec="seconds") if row.made_at else ""}
    kept = {name: value for name, value in before.items() if value}
    audit.record(actor, "session.end", "user", user.username, kept or None, None, now)
    return True


def end_everywhere(
    user: User, actor: str, now: datetime, *, but: str | None = None, with_tokens: bool = False
) -> tuple[int, int]:
    """End all sessions, except the one with the key `but`; and revoke all tokens if that is wanted.

    Returns how many sessions ended and how many tokens were revoked.
    """
    ended = sessions.end_all(user, now, but)
    revoked = tokens.revoke_all(user, now, actor) if with_tokens else 0
    audit.record(actor, "session.end_all", "user", user.username, None, {"sessions": ended}, now)
    return ended, revoked
