"""Bearer tokens for scripts. A token is shown once, when it is made; only its digest is stored."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db.models import Q

from console.models import ApiToken

# The prefix lets secret scanners and people recognise a leaked token.
PREFIX = "tyd_"
# People read `last_used_at`, so one write a minute is enough.
USED_EVERY = timedelta(minutes=1)


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def create(user: User, name: str, now: datetime) -> tuple[ApiToken, str]:
    """Make a token. Returns the row and the token itself, which cannot be shown again."""
    token = PREFIX + secrets.token_urlsafe(32)
    return ApiToken.objects.create(user=user, name=name, digest=digest(token), created_at=now), token


def owner(token: str, now: datetime) -> User | None:
    """The owner of the token, if the token is valid and the owner is active."""
    row = ApiToken.objects.select_related("user").filter(digest=digest(token), revoked_at=None).first()
    if row is None or not row.user.is_active:
        return None
    stale = Q(last_used_at=None) | Q(last_used_at__lt=now - USED_EVERY)
    if row.last_used_at is None or row.last_used_at < now - USED_EVERY:
        ApiToken.objects.filter(stale, pk=row.pk).update(last_used_at=now)
    return row.user


def revoke(user: User, token_id: int, now: datetime) -> bool:
    """Revoke a token. Returns False when the user has no such token, or when it was revoked before."""
    return ApiToken.objects.filter(user=user, pk=token_id, revoked_at=None).update(revoked_at=now) == 1


def revoke_all(user: User, now: datetime) -> int:
    """Revoke all tokens of the user. Returns how many were still valid."""
    return ApiToken.objects.filter(user=user, revoked_at=None).update(revoked_at=now)
