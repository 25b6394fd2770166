"""Begins and ends the sessions of people.

An ended session is deleted. It does not come back when a disabled person is enabled, and a request that still holds
it cannot save it again.
"""

from __future__ import annotations

from datetime import datetime
from importlib import import_module
from types import SimpleNamespace
from typing import cast

from django.conf import settings
from django.contrib import auth
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest

from console.auth import confirmation, login_audit, second_factor, throttle, tokens
from console.auth.session_store import BEGUN, Way
from console.models import Session
from jobs import shells
from jobs.models import ShellSession

# Why a shell ends that was opened by a session or token which has ended.
LOGGED_OUT = "Its owner is logged out."


def begin(request: HttpRequest, user: User, now: datetime, way: Way) -> bool:
    """Log the person in. Returns False if the person was disabled meanwhile.

    The session is stored while the person's row is locked: `accounts.disable`, which writes to that row, either comes
    first, or finds the session and ends it.
    """
    with transaction.atomic():
        if not User.objects.select_for_update().filter(pk=user.pk, is_active=True).exists():
            return False
        auth.login(request, user)
        confirmation.mark(request.session, now)
        request.session[BEGUN] = {
            "at": now.isoformat(),
            "way": way.value,
            "address": str(request.META.get("REMOTE_ADDR", ""))[:64],
            "agent": request.headers.get("User-Agent", "")[:200],
        }
        request.session.save()
        login_audit.succeeded(user, throttle.address_of(request), now)
    return True


def user_of(key: str) -> User | None:
    """Whose session this is, if it still holds."""
    store = import_module(settings.SESSION_ENGINE).SessionStore(key)
    found = auth.get_user(cast(HttpRequest, SimpleNamespace(session=store)))
    if not isinstance(found, User) or not found.is_active:
        return None
    way = store.get(BEGUN, {}).get("way", "")
    return None if second_factor.is_missing(found, way) else found


def end(session: Session, now: datetime) -> None:
    """End one session: its sockets close within seconds, and the shells that were opened by it end on their hosts."""
    _end([session], now)


def end_all(user: User, now: datetime, but: str | None = None) -> int:
    """End the sessions of a person, except the one with the key `but`. Returns how many ended."""
    return _end(list(Session.objects.filter(user=user).exclude(session_key=but)), now)


def _end(ending: list[Session], now: datetime) -> int:
    logins = [tokens.digest(row.session_key) for row in ending]
    for shell in ShellSession.objects.filter(login__in=logins, closed_at=None, keep_s__gt=0):
        shells.want_close(shell, LOGGED_OUT, now)
    return Session.objects.filter(pk__in=[row.pk for row in ending]).delete()[0]
