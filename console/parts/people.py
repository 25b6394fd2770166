"""The live parts of the pages of people, and of the audit."""

from __future__ import annotations

from collections.abc import Hashable

from django.contrib.auth.models import User

from console.auth import access
from console.parts.part import Part, Place, Seen
from console.presenters import live
from jobs.models import AuditEntry


def _see_audit(user: User, place: Place) -> Seen:
    access.require(user, "see", AuditEntry)
    return Seen(user, access.rights_key(user), ())


def _stamp_of_audit(user: User, place: Place) -> str:
    return live.audit_stamp(user, dict(place.query))


def _audit(user: User, place: Place, rights: Hashable) -> str:
    return live.audit_live(user, dict(place.query))


def _see_people(user: User, place: Place) -> Seen:
    access.require(user, "manage", User)
    return Seen(user, access.rights_key(user), ())


def _stamp_of_people(user: User, place: Place) -> str:
    return live.people_stamp(dict(place.query))


def _people(user: User, place: Place, rights: Hashable) -> str:
    return live.people_live(dict(place.query))


def _see_own(user: User, place: Place) -> Seen:
    """What belongs to one person alone, and so not to a token that is limited to a project."""
    access.require_account(user, change=False)
    return Seen(user, (access.rights_key(user), user.pk), ())


def _stamp_of_tokens(user: User, place: Place) -> str:
    return live.tokens_stamp(user)


def _tokens(user: User, place: Place, rights: Hashable) -> str:
    return live.tokens_live(user)


def _stamp_of_sessions(user: User, place: Place) -> str:
    return live.sessions_stamp(user)


def _sessions(user: User, place: Place, rights: Hashable) -> str:
    return live.sessions_live(user)


def _stamp_of_sent(user: User, place: Place) -> str:
    return live.sent_stamp(user)


def _sent(user: User, place: Place, rights: Hashable) -> str:
    return live.sent_live(user)


AUDIT = Part("audit", _see_audit, _stamp_of_audit, _audit)
PEOPLE = Part("people", _see_people, _stamp_of_people, _people)
SENT = Part("sent", _see_own, _stamp_of_sent, _sent)
SESSIONS = Part("sessions", _see_own, _stamp_of_sessions, _sessions)
TOKENS = Part("tokens", _see_own, _stamp_of_tokens, _tokens)
