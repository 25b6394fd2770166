"""Bearer tokens for scripts. A token is shown once, when it is made; only its digest is stored.

A token has the rights of its owner, or a part of them (scopes.py). It ends at its time, when it is revoked, when its
owner's password changes, and when the owner is disabled. Making and revoking are in the audit. The caller has checked
the permission and owns the transaction.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q, QuerySet

from agents.infra.refusals import Refused
from agents.infra.sql import Parameter, PartialModel, SelectStatement
from agents.infra.texts import said
from console.auth import scopes
from console.auth.scopes import Grant, Scope
from console.models import ApiToken
from jobs.projects import audit

# The prefix lets secret scanners and people recognise a leaked token.
PREFIX = "tyd_"
# People read `last_used_at`, so one write a minute is enough.
USED_EVERY = timedelta(minutes=1)
DEFAULT_DAYS, MAX_DAYS = 90, 366
# From so long before its end, pages and messages warn of the end of a token.
WARNED_BEFORE = timedelta(days=7)
MAX_NAME = 100

_TOKEN, _USER = PartialModel(ApiToken), PartialModel(User)
_of_active = SelectStatement(
    lambda: (
        ApiToken.objects.filter(digest=Parameter("digest"), revoked_at=None, user__is_active=True)
        .order_by()
        .values_list(*_TOKEN.names, *(f"user__{name}" for name in _USER.names))
    )
)


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def create(
    user: User,
    name: str,
    now: datetime,
    *,
    actor: str = "",
    days: float = DEFAULT_DAYS,
    elevated: bool = False,
    until: datetime | None = None,
    grant: Grant = scopes.WHOLE,
) -> tuple[ApiToken, str]:
    """Make a token. Returns the row and the token itself, which cannot be shown again.

    `elevated`: the token may do what asks a person for the password. `until`: the token ends at this time at latest.
    `grant`: the part of the person's rights that it has.
    Raises Refused about the name or the days, and when the password has changed since `user` was read: a request that
    was let in before the change must not leave a token behind. The person's row stays locked until the commit, so
    whoever changes the password waits, and revokes this token as well.
    """
    if not name.strip() or len(name) > MAX_NAME:
        raise Refused("name", said("Say what the token is for, in at most {most} characters.", most=MAX_NAME))
    if not 1 <= days <= MAX_DAYS:
        raise Refused(
            "days",
            said("A token is valid for 1 to {most} days, not {days}.", most=MAX_DAYS, days=f"{days:g}"),
        )
    if elevated and grant.scope is not Scope.ADMIN:
        raise Refused(
            "scope",
            said(
                "Who may give rights needs the scope “{needed}”, not “{scope}”.",
                needed=Scope.ADMIN,
                scope=grant.scope,
            ),
        )
    end = now + timedelta(days=days)
    with transaction.atomic():
        return _create(user, name, now, actor or user.username, min(end, until or end), elevated, grant)


def _create(
    user: User, name: str, now: datetime, actor: str, end: datetime, elevated: bool, grant: Grant
) -> tuple[ApiToken, str]:
    same = User.objects.select_for_update(no_key=True).filter(
        pk=user.pk, is_active=True, password=user.password
    )
    if not same.exists():
        raise Refused(
            "name", said("The password was changed or the account disabled at this moment. Log in again.")
        )
    token = PREFIX + secrets.token_urlsafe(32)
    row = ApiToken.objects.create(
        user=user,
        name=name,
        digest=digest(token),
        created_at=now,
        expires_at=end,
        elevated=elevated,
        scope=grant.scope.value,
        project_id=grant.project_id,
    )
    audit.record(actor, "token.make", "user", user.username, None, audited(row), now)
    return row, token


def audited(row: ApiToken) -> dict[str, object]:
    ends = row.expires_at.isoformat(timespec="seconds")
    limits = {
        "scope": row.scope if row.scope != Scope.ADMIN else "",
        "project": row.project and row.project.name,
    }
    rights = {"elevated": row.elevated, **limits}
    return {"name": row.name, "expires": ends, **{name: value for name, value in rights.items() if value}}


def valid(token: str, now: datetime) -> ApiToken | None:
    """The row of the token with its owner, if the token is valid and the owner is active."""
    row = _row(token)
    if row is None or row.expires_at <= now:
        return None
    stale = Q(last_used_at=None) | Q(last_used_at__lt=now - USED_EVERY)
    if row.last_used_at is None or row.last_used_at < now - USED_EVERY:
        ApiToken.objects.filter(stale, pk=row.pk).update(last_used_at=now)
    return row


def owner(token: str, now: datetime) -> User | None:
    """The owner of the token, if the token is valid and the owner is active."""
    row = valid(token, now)
    return row.user if row else None


def refusal(token: str, now: datetime) -> str:
    """Why a token that is not valid is refused. Only a person who has the token learns that it existed."""
    row = _row(token)
    if row is not None and row.expires_at <= now:
        return (
            f"The API token “{row.name}” expired on {row.expires_at:%Y-%m-%d}. "
            "Make another one: Account → API tokens."
        )
    return "The API token is not known, or it was revoked."


def ending(now: datetime) -> QuerySet[ApiToken]:
    """The valid tokens that end within WARNED_BEFORE, the first one first. Some were made for a short time."""
    rows = ApiToken.objects.filter(revoked_at=None, user__is_active=True, expires_at__gt=now)
    return rows.filter(expires_at__lte=now + WARNED_BEFORE).order_by("expires_at")


def ends_soon(row: ApiToken, now: datetime) -> bool:
    """Whether it is time to warn of the end: a week before, for a token of a few weeks or less its last quarter."""
    before = min(WARNED_BEFORE, (row.expires_at - row.created_at) / 4)
    return now < row.expires_at <= now + before


def revoke(user: User, token_id: int, now: datetime, actor: str = "") -> bool:
    """Revoke a token. Returns False when the user has no such token, or when it was revoked before."""
    row = ApiToken.objects.filter(user=user, pk=token_id).first()
    if row is None or not ApiToken.objects.filter(pk=row.pk, revoked_at=None).update(revoked_at=now):
        return False
    audit.record(actor or user.username, "token.revoke", "user", user.username, audited(row), None, now)
    return True


def revoke_all(user: User, now: datetime, actor: str = "") -> int:
    """Revoke all tokens of the user. Returns how many were still valid."""
    rows = list(_valid(user, now))
    return sum(revoke(user, row.pk, now, actor) for row in rows)


def _row(token: str) -> ApiToken | None:
    rows = _of_active(digest=digest(token))
    if not rows:
        return None
    own = len(_TOKEN.names)
    row = _TOKEN.build(rows[0][:own])
    row.user = _USER.build(rows[0][own:])
    scopes.give(row.user, Grant(Scope(row.scope), row.project_id))
    return row


def _valid(user: User, now: datetime) -> QuerySet[ApiToken]:
    return ApiToken.objects.filter(user=user, revoked_at=None, expires_at__gt=now)
