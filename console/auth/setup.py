"""The setup link for the first admin: it is printed at start and works once, while no admin exists."""

from __future__ import annotations

import secrets
from datetime import datetime

from django.contrib.auth.models import User

from console.auth import accounts
from console.auth.tokens import digest
from console.models import SetupToken


class SetupClosed(Exception):
    """This setup link is not valid any more. While no admin exists, restarting Trainyard prints a new one."""


def needed() -> bool:
    return not User.objects.filter(is_superuser=True, is_active=True).exists()


def renew(now: datetime) -> str:
    """Make a new token for the link. Older links stop working, so a link in an old shared log is useless."""
    token = secrets.token_urlsafe(24)
    SetupToken.objects.all().delete()
    SetupToken.objects.create(digest=digest(token), created_at=now)
    return token


def is_open(token: str) -> bool:
    return needed() and SetupToken.objects.filter(digest=digest(token), used_at=None).exists()


def redeem(token: str, username: str, password: str, now: datetime) -> User:
    """Make the first admin. The caller owns the transaction. Of two calls at the same time, one raises SetupClosed."""
    taken = SetupToken.objects.filter(digest=digest(token), used_at=None).update(used_at=now)
    if not taken or not needed():
        raise SetupClosed(SetupClosed.__doc__)
    return accounts.add(username, password=password, admin=True, actor=username, now=now)
