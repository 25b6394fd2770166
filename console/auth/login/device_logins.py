"""Logins of the command line client, as RFC 8628 has them: the client shows a code, and a person who is logged in
confirms it on a page.

Anybody may begin one, so there are few at once: of one network, and of all. A code is of use to nobody else: whoever
types the code of somebody else gives away a token of their own. Therefore the page says who asks and from where, and
asks for the password again as for every token.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import transaction

from agents.infra.refusals import Exhausted
from agents.infra.texts import said
from console.auth import tokens
from console.auth.login.client_network import client_network
from console.auth.scopes import Grant, Scope
from console.models import DeviceLogin

LIFE = timedelta(minutes=10)
# How often the client asks whether the code was confirmed.
INTERVAL_S = 2
MOST_OF_NETWORK, MOST = 20, 1000
MAX_CLIENT = 100
# Letters that make no words, and that look like no other.
LETTERS, SIZE = "BCDFGHJKLMNPQRSTVWXZ", 8


@dataclass(frozen=True, slots=True)
class Outcome:
    """How far a login is. `token` is there once, when it was confirmed."""

    state: str
    token: str = ""


PENDING, DENIED, GONE, CONFIRMED = "PENDING", "DENIED", "GONE", "CONFIRMED"


def begin(client: str, address: str, now: datetime) -> tuple[DeviceLogin, str]:
    """A new login, and its secret. Raises Exhausted where there are too many."""
    network = client_network(address)
    open_ones = DeviceLogin.objects.filter(expires_at__gt=now, user=None)
    if open_ones.filter(network=network).count() >= MOST_OF_NETWORK or open_ones.count() >= MOST:
        raise Exhausted(
            "client", said("Too many logins wait for their confirmation. Try again in some minutes.")
        )
    secret = secrets.token_urlsafe(32)
    code = "".join(secrets.choice(LETTERS) for _ in range(SIZE))
    row = DeviceLogin.objects.create(
        digest=_digest(secret),
        code=code,
        client=client,
        address=address[:64],
        network=network[:64],
        made_at=now,
        expires_at=now + LIFE,
    )
    return row, secret


def shown(code: str) -> str:
    """The code as people read it."""
    return f"{code[:4]}-{code[4:]}"


def waiting(typed: str, now: datetime) -> DeviceLogin | None:
    """The login with this code that nobody has answered yet."""
    code = "".join(letter for letter in typed.upper() if letter.isalpha())
    rows = DeviceLogin.objects.filter(expires_at__gt=now, user=None, denied_at=None)
    return rows.filter(code=code).first() if len(code) == SIZE else None


def confirm(row: DeviceLogin, user: User, grant: Grant, days: int) -> bool:
    """Let the client have a token of this person. False when somebody has answered already."""
    return bool(
        DeviceLogin.objects.filter(pk=row.pk, user=None, denied_at=None).update(
            user=user,
            auth_hash=user.get_session_auth_hash(),
            scope=grant.scope.value,
            project=grant.project_id,
            days=days,
        )
    )


def deny(row: DeviceLogin, now: datetime) -> None:
    DeviceLogin.objects.filter(pk=row.pk, user=None).update(denied_at=now)


def take(secret: str, now: datetime) -> Outcome:
    """What the client is answered. A confirmed login is answered once, with the token."""
    with transaction.atomic():
        row = DeviceLogin.objects.select_for_update(of=("self",)).filter(digest=_digest(secret)).first()
        if row is None or row.expires_at <= now:
            return Outcome(GONE)
        if row.denied_at is not None:
            return Outcome(DENIED)
        if row.user is None:
            return Outcome(PENDING)
        user, grant = row.user, Grant(Scope(row.scope), row.project_id)
        row.delete()
        if not user.is_active or row.auth_hash != user.get_session_auth_hash():
            return Outcome(DENIED)
        name = f"command line: {row.client}"[: tokens.MAX_NAME]
        _, token = tokens.create(user, name, now, days=row.days, grant=grant)
        return Outcome(CONFIRMED, token)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
