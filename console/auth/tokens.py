"""Bearer tokens for scripts: made once, shown once, kept as a digest."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db.models import Q

from console.models import ApiToken

# Said at the front so that secret scanners and people recognise one that leaked.
PREFIX = "tyd_"
# `last_used_at` is for people; one write a minute is enough for them.
USED_EVERY = timedelta(minutes=1)


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def create(user: User, name: str, now: datetime) -> tuple[ApiToken, str]:
    """The row, and the token itself, which nobody can see again."""
    token = PREFIX + secrets.token_urlsafe(32)
    return ApiToken.objects.create(user=user, name=name, digest=digest(token), created_at=now), token


def owner(token: str, now: datetime) -> User | None:
    """Whose token this is, if it may still be used."""
    row = ApiToken.objects.select_related("user").filter(digest=digest(token), revoked_at=None).first()
    if row is None or not row.user.is_active:
        return None
    stale = Q(last_used_at=None) | Q(last_used_at__lt=now - USED_EVERY)
    if row.last_used_at is None or row.last_used_at < now - USED_EVERY:
        ApiToken.objects.filter(stale, pk=row.pk).update(last_used_at=now)
    return row.user


def revoke(user: User, token_id: int, now: datetime) -> bool:
    """False when the user has no such token, or it was revoked before."""
    return ApiToken.objects.filter(user=user, pk=token_id, revoked_at=None).update(revoked_at=now) == 1


def revoke_all(user: User, now: datetime) -> int:
    """How many were still good."""
    return ApiToken.objects.filter(user=user, revoked_at=None).update(revoked_at=now)
