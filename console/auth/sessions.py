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

from console.auth import confirmation, login_audit, throttle
from console.models import Session


def begin(request: HttpRequest, user: User, now: datetime) -> bool:
    """Log the person in. Returns False if the person was disabled meanwhile.

    The session is stored while the person's row is locked: `accounts.disable`, which writes to that row, either comes
    first, or finds the session and ends it.
    """
    with transaction.atomic():
        if not User.objects.select_for_update().filter(pk=user.pk, is_active=True).exists():
            return False
        auth.login(request, user)
        confirmation.mark(request.session, now)
        request.session.save()
        login_audit.succeeded(user, throttle.address_of(request), now)
    return True


def user_of(key: str) -> User | None:
    """Whose session this is, if it still holds."""
    store = import_module(settings.SESSION_ENGINE).SessionStore(key)
    found = auth.get_user(cast(HttpRequest, SimpleNamespace(session=store)))
    return found if isinstance(found, User) and found.is_active else None


def end_all(user: User, but: str | None = None) -> int:
    """End the sessions of a person, except the one with the key `but`. Returns how many ended."""
    return Session.objects.filter(user=user).exclude(session_key=but).delete()[0]
