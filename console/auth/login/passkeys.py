"""Passkeys (WebAuthn): a key of a person's device, which a finger, a face or a PIN unlocks. It is both factors at once.

A device signs a challenge of ours for our name only, so no other site can use the signature. The name is that of the
address in the browser, or of TRAINYARD_URL: WebAuthn needs https and a name, or `localhost`. A signature counter that
does not grow is the sign of a copied key.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from datetime import datetime
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q
from django.http import HttpRequest
from fido2.server import Fido2Server
from fido2.webauthn import (
    AttestedCredentialData,
    AuthenticationResponse,
    PublicKeyCredentialRpEntity,
    PublicKeyCredentialUserEntity,
    ResidentKeyRequirement,
    UserVerificationRequirement,
)

from agents.infra.refusals import Refused
from agents.infra.texts import said
from console.auth.login import login_audit, throttle
from console.models import Passkey
from jobs.projects import audit

MOST: Final = 20
MAX_NAME: Final = 100
# In the browser's session between the question and its answer.
STATE: Final = "passkey"
# Under this name the tries of an address are counted: a passkey says who it is only when it is good.
ANYBODY: Final = "passkey"
NOT_GOOD: Final = said("This passkey does not open an account here.")
NOT_SURE: Final = said("You gave your password more than an hour ago. Log in again, then add the passkey.")

# What fido2 raises about an answer that is not good, or not an answer at all.
BAD_ANSWERS = (ValueError, KeyError, TypeError, AttributeError, IndexError, struct.error)

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Site:
    """The name for which keys are made, and the only page from which they may be used."""

    name: str
    origin: str


def site_of(request: HttpRequest) -> Site:
    origin = settings.TRAINYARD.url or f"{request.scheme}://{request.get_host()}"
    return Site(urlsplit(origin).hostname or "", origin)


def why_not(site: Site) -> str:
    """Why this address has no passkeys; empty if it has."""
    try:
        ip_address(site.name)
    except ValueError:
        is_number = False
    else:
        is_number = True
    if site.name == "localhost" or (site.origin.startswith("https://") and not is_number):
        return ""
    return said(
        "Passkeys need an address with https:// and a name. An admin sets TRAINYARD_URL (docs/operating.md, Access "
        "from other machines)."
    )


def begin_adding(site: Site, user: User) -> tuple[Document, Document]:
    """What the browser is asked, and what is kept until it answers. Raises Refused."""
    _require(site)
    if user.passkeys.count() >= MOST:
        raise Refused("name", said("You have {number} passkeys. Remove one first.", number=MOST))
    entity = PublicKeyCredentialUserEntity(
        id=hashlib.sha256(f"{settings.DEPLOYMENT}:{user.pk}".encode()).digest(),
        name=user.username,
        display_name=user.username,
    )
    options, state = _server(site).register_begin(
        entity,
        [_credential(row) for row in user.passkeys.all()],
        ResidentKeyRequirement.REQUIRED,
        UserVerificationRequirement.REQUIRED,
    )
    return dict(options), state


def add(site: Site, user: User, name: str, state: Document, answer: Any, now: datetime) -> Passkey:
    """Keep a new passkey. Raises Refused."""
    if not name.strip() or len(name) > MAX_NAME:
        raise Refused("name", said("Name the passkey, in at most {number} characters.", number=MAX_NAME))
    try:
        data = _server(site).register_complete(state, answer)
    except BAD_ANSWERS as problem:
        raise Refused("", said("The device gave no good passkey. Try again.")) from problem
    assert data.credential_data is not None
    with transaction.atomic():
        digest = _digest(data.credential_data.credential_id)
        if Passkey.objects.filter(digest=digest).exists():
            raise Refused("", said("This passkey is known already."))
        row = Passkey.objects.create(
            user=user,
            name=name.strip(),
            digest=digest,
            credential=bytes(data.credential_data),
            counter=data.counter,
            made_at=now,
        )
        audit.record(user.username, "passkey.add", "user", user.username, None, {"name": row.name}, now)
    return row


def remove(user: User, pk: int, actor: str, now: datetime) -> bool:
    row = Passkey.objects.filter(user=user, pk=pk).first()
    if row is None:
        return False
    with transaction.atomic():
        row.delete()
        audit.record(actor, "passkey.remove", "user", user.username, {"name": row.name}, None, now)
    return True


def remove_all(user: User, actor: str, now: datetime) -> int:
    return sum(remove(user, row.pk, actor, now) for row in user.passkeys.all())


def begin_using(site: Site) -> tuple[Document, Document]:
    """The same for a login. It names nobody: the device knows whose keys it has. Raises Refused."""
    _require(site)
    options, state = _server(site).authenticate_begin(user_verification=UserVerificationRequirement.REQUIRED)
    return dict(options), state


def owner_of(request: HttpRequest, site: Site, state: Document, answer: Any, now: datetime) -> User:
    """Whose passkey has answered. Raises Refused, which does not say whether there is such a key."""
    address = throttle.address_of(request)
    if throttle.attempt(ANYBODY, address, now):
        raise Refused("", said("Too many tries. Try again in some minutes."))
    try:
        row = _used(site, state, answer, now)
    except BAD_ANSWERS as problem:
        login_audit.failed(ANYBODY, address, now)
        raise Refused("", NOT_GOOD) from problem
    throttle.succeeded(ANYBODY, address)
    return row.user


def _used(site: Site, state: Document, answer: Any, now: datetime) -> Passkey:
    """Raises one of BAD_ANSWERS."""
    given = AuthenticationResponse.from_dict(answer)
    rows = Passkey.objects.select_related("user")
    row = rows.filter(digest=_digest(given.raw_id)).first()
    if row is None or not row.user.is_active:
        raise ValueError("no such passkey")
    _server(site).authenticate_complete(state, [_credential(row)], answer)
    counter = given.response.authenticator_data.counter
    # Many devices count nothing and always say 0.
    grown = Q(counter__lt=counter) if counter else Q(counter=0)
    if not Passkey.objects.filter(grown, pk=row.pk).update(counter=counter, used_at=now):
        raise ValueError("the counter has not grown: this may be a copy")
    return row


def _require(site: Site) -> None:
    if problem := why_not(site):
        raise Refused("", problem)


def _server(site: Site) -> Fido2Server:
    entity = PublicKeyCredentialRpEntity(id=site.name, name="Trainyard")
    return Fido2Server(entity, verify_origin=lambda origin: origin == site.origin)


def _credential(row: Passkey) -> AttestedCredentialData:
    return AttestedCredentialData(bytes(row.credential))


def _digest(credential_id: bytes) -> str:
    return hashlib.sha256(credential_id).hexdigest()
