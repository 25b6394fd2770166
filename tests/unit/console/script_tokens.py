"""Tokens for scripts of the tests, also for a disabled person, who had one before."""

from __future__ import annotations

import secrets
from datetime import timedelta

from django.utils import timezone

from console.auth import tokens
from console.models import ApiToken


def token_of(user, elevated=False, scope="admin", project=None):
    """Not by `tokens.create`, which refuses a disabled person, and writes into the audit."""
    token, now = secrets.token_hex(), timezone.now()
    ApiToken.objects.create(
        user=user,
        name="test",
        digest=tokens.digest(token),
        created_at=now,
        expires_at=now + timedelta(days=90),
        elevated=elevated,
        scope=scope,
        project=project,
    )
    return token
