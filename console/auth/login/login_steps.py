"""A login in two steps: who has given the password and has a second factor waits for the code.

Between the steps there is no login. The browser has a session that belongs to nobody, with a note of who waits; a
session of the person begins after the second step only.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.contrib.sessions.backends.base import SessionBase
from django.http import HttpRequest
from django.utils.crypto import constant_time_compare

from console.auth import sessions
from console.auth.login import passkeys, second_factor
from console.auth.session_store import Way

WAITS = "second_step"
GOOD_FOR = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A person whose code is asked for, and the page that they wanted."""

    user: User
    way: Way
    onward: str


def begin(request: HttpRequest, user: User, now: datetime, way: Way, onward: str = "") -> str:
    """Begin the session, or ask for the code first. Returns the name of the page to go to now; empty where the person
    was disabled meanwhile."""
    if not second_factor.has(user):
        return "home" if sessions.begin(request, user, now, way) else ""
    request.session.flush()
    request.session[WAITS] = {
        "user": user.pk,
        "password": user.get_session_auth_hash(),
        "at": now.timestamp(),
        "way": way.value,
        "onward": onward,
    }
    return "login-code"


def reset(user: User, actor: str, now: datetime) -> bool:
    """For a person who has lost their devices: no second factor and no passkey, only the password or a new link.

    Returns False where there was nothing."""
    had_keys = passkeys.remove_all(user, actor, now) > 0
    return second_factor.remove(user, actor, now) or had_keys


def waiting(session: SessionBase, now: datetime) -> Waiting | None:
    """Who waits for the second step in this browser, while the password is the same and it is not too long ago."""
    note = session.get(WAITS)
    if not note or not 0 <= now.timestamp() - note["at"] < GOOD_FOR.total_seconds():
        return None
    user = User.objects.filter(pk=note["user"], is_active=True).first()
    if user is None or not constant_time_compare(user.get_session_auth_hash(), note["password"]):
        return None
    return Waiting(user, Way(note["way"]), note["onward"])


def finish(request: HttpRequest, found: Waiting, typed: str, now: datetime) -> bool:
    """Check the code and begin the session. Raises Refused about the code. Returns False if the person was disabled."""
    second_factor.check(request, found.user, typed, now)
    request.session.pop(WAITS, None)
    return sessions.begin(request, found.user, now, found.way)
