"""Asks for the password again before acts that give rights away: making a token, giving admin rights of the deployment
or of a project, making a login link for a person, accepting a host key.

A login counts as a confirmation for an hour. So a browser that somebody left open, or a stolen session, cannot do these
acts. A script has no password to give: its token may do them only if it was made for that (`ApiToken.elevated`).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.contrib.sessions.backends.base import SessionBase

GOOD_FOR = timedelta(hours=1)
CONFIRMED_AT = "confirmed_at"


def mark(session: SessionBase, now: datetime) -> None:
    """The person has just given the password."""
    mark_at(session, now.timestamp())


def mark_at(session: SessionBase, moment: float) -> None:
    """The person has last given the password at this moment, in seconds since 1970."""
    session[CONFIRMED_AT] = moment


def is_fresh(session: SessionBase, now: datetime) -> bool:
    """Whether the password was given lately. A time in the future means that the clock was set back."""
    age = now.timestamp() - float(session.get(CONFIRMED_AT, 0.0))
    return 0 <= age < GOOD_FOR.total_seconds()
