"""Begins and ends the sessions of people.

An ended session is deleted. It does not come back when a disabled person is enabled, and a request that still holds
it cannot save it again.
"""

from __future__ import annotations

from datetime import datetime
from types import SimpleNamespace
from typing import cast

from django.contrib import auth
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models.functions import Left
from django.http import HttpRequest

from agents.infra.texts import said
from console.auth.login import confirmation, login_audit, second_factor, throttle
from console.auth.session_store import BEGUN, KEY_LETTERS, SessionStore, Way, stored_key
from console.models import Session
from jobs import shells
from jobs.models import ShellSession

# Why a shell ends that was opened by a session or token which has ended.
LOGGED_OUT = said("Its owner is logged out.")


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
    return _owner(SessionStore(key))


def user_of_row(row: Session) -> User | None:
    """The same, for who has the row and not the key."""
    return _owner(SessionStore.of_row(row))


def _owner(store: SessionStore) -> User | None:
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
    stays = stored_key(but) if but else None
    return _end(list(Session.objects.filter(user=user).exclude(pk=stays)), now)


def _end(ending: list[Session], now: datetime) -> int:
    kept = ShellSession.objects.filter(closed_at=None, keep_s__gt=0)
    of_sessions = kept.annotate(session=Left("login", KEY_LETTERS))
    for shell in of_sessions.filter(session__in=[row.pk for row in ending]):
        shells.want_close(shell, LOGGED_OUT, now)
    return Session.objects.filter(pk__in=[row.pk for row in ending]).delete()[0]
