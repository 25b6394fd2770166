"""The second factor of a person: a code of the app on their phone, every 30 s another (TOTP), and recovery codes.

A code is good once, and so is a recovery code: the row is changed by a conditional statement, so two requests at the
same time cannot both use one. A phone's clock may be wrong by a step. Wrong codes are counted for the account, from
wherever they come: only somebody who has the password gets here.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from datetime import datetime
from typing import Final
from urllib.parse import quote

from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP
from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest

from agents.infra import secrets as sealing
from agents.infra.refusals import Refused
from agents.infra.texts import said
from console.auth import tokens
from console.auth.login import login_audit, throttle
from console.auth.session_store import Way
from console.models import RecoveryCode, SecondFactor
from jobs.projects import audit

STEP_S: Final = 30
DIGITS: Final = 6
KEY_BYTES: Final = 20
RECOVERY_CODES: Final = 10
ISSUER: Final = "Trainyard"
# Without letters and digits that look alike.
_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
_RECOVERY_LETTERS = 16


def new_key() -> bytes:
    return secrets.token_bytes(KEY_BYTES)


def key_text(key: bytes) -> str:
    """The key as people type it into an app, in groups of four."""
    text = base64.b32encode(key).decode()
    return " ".join(text[at : at + 4] for at in range(0, len(text), 4))


def address_of(key: bytes, user: User) -> str:
    """What the QR code says: apps read the account, the issuer and the key from it."""
    label = quote(f"{ISSUER}:{user.username}", safe=":")
    return f"otpauth://totp/{label}?secret={base64.b32encode(key).decode()}&issuer={ISSUER}"


def has(user: User) -> bool:
    return SecondFactor.objects.filter(user=user).exists()


def is_missing(user: User, way: str) -> bool:
    """Whether the deployment wants a second factor of this person, and they have logged in without one.

    A passkey is both factors at once. The OIDC server of a company has its own rules for second factors.
    """
    wanted = settings.TRAINYARD.require_second_factor
    if not wanted or (wanted == "ADMINS" and not user.is_superuser) or way in (Way.OIDC, Way.PASSKEY):
        return False
    return not has(user)


def set_up(user: User, key: bytes, code: str, actor: str, now: datetime) -> list[str]:
    """Turn the second factor on, or replace it. Returns the new recovery codes, which are shown once.

    Raises Refused when the code is not of this key: the person's phone must have it before the login asks for it.
    """
    step = _step_of(key, code, now)
    if step is None:
        raise Refused(
            "code", said("The code is wrong. Compare the clock of your phone, and type the newest code.")
        )
    sealed = sealing.encrypt(key)
    with transaction.atomic():
        rows = {"sealed": sealed, "made_at": now, "used_step": step}
        SecondFactor.objects.update_or_create(user=user, defaults=rows)
        audit.record(actor, "second_factor.set", "user", user.username, None, None, now)
        return _new_codes(user, now)


def renew_codes(user: User, actor: str, now: datetime) -> list[str]:
    """New recovery codes; the old ones are not good any more."""
    with transaction.atomic():
        audit.record(actor, "second_factor.codes", "user", user.username, None, None, now)
        return _new_codes(user, now)


def remove(user: User, actor: str, now: datetime) -> bool:
    """Take the second factor away, with the recovery codes. Returns False where there was none."""
    with transaction.atomic():
        RecoveryCode.objects.filter(user=user).delete()
        removed = bool(SecondFactor.objects.filter(user=user).delete()[0])
        if removed:
            audit.record(actor, "second_factor.remove", "user", user.username, None, None, now)
    return removed


def codes_left(user: User) -> int:
    return RecoveryCode.objects.filter(user=user).count()


def check(request: HttpRequest, user: User, typed: str, now: datetime) -> None:
    """Raises Refused where this is neither a code of the person's app nor a recovery code, or was used before."""
    account = f"code:{user.pk}"
    wait = throttle.attempt(user.username, account, now)
    if wait:
        login_audit.wrong_code(user, throttle.address_of(request), now)
        minutes = int(wait.total_seconds() // 60) + 1
        raise Refused("", said("Too many wrong codes. Try again in {minutes} min.", minutes=minutes))
    if not (_is_good_code(user, typed, now) or _is_good_recovery_code(user, typed, now)):
        login_audit.wrong_code(user, throttle.address_of(request), now)
        raise Refused("code", said("The code is wrong, too old, or used already. Wait for the next one."))
    throttle.succeeded(user.username, account)


def looks_like_code(typed: str) -> bool:
    """No password is so short."""
    return len(_digits(typed)) == DIGITS


def _is_good_code(user: User, typed: str, now: datetime) -> bool:
    row = SecondFactor.objects.filter(user=user).first()
    if row is None:
        return False
    step = _step_of(sealing.decrypt(row.sealed), typed, now)
    if step is None:
        return False
    return bool(SecondFactor.objects.filter(pk=row.pk, used_step__lt=step).update(used_step=step))


def _is_good_recovery_code(user: User, typed: str, now: datetime) -> bool:
    plain = "".join(letter for letter in typed.lower() if letter in _LETTERS)
    if len(plain) != _RECOVERY_LETTERS:
        return False
    used = RecoveryCode.objects.filter(user=user, digest=tokens.digest(f"{user.pk}:{plain}")).delete()[0]
    if used:
        left = {"left": codes_left(user)}
        audit.record(user.username, "second_factor.recovery", "user", user.username, None, left, now)
    return bool(used)


def _step_of(key: bytes, typed: str, now: datetime) -> int | None:
    """The step of 30 s to which the code belongs: this one, the one before or the next one."""
    digits, step = _digits(typed), int(now.timestamp()) // STEP_S
    totp = TOTP(key, DIGITS, SHA1(), STEP_S)
    found = None
    for one in (step - 1, step, step + 1):
        if hmac.compare_digest(totp.generate(one * STEP_S), digits.encode()):
            found = one
    return found


def _digits(typed: str) -> str:
    plain = typed.replace(" ", "").replace("-", "")
    return plain if plain.isascii() and plain.isdecimal() else ""


def _new_codes(user: User, now: datetime) -> list[str]:
    RecoveryCode.objects.filter(user=user).delete()
    plain = [
        "".join(secrets.choice(_LETTERS) for _ in range(_RECOVERY_LETTERS)) for _ in range(RECOVERY_CODES)
    ]
    RecoveryCode.objects.bulk_create(
        RecoveryCode(user=user, digest=tokens.digest(f"{user.pk}:{code}"), made_at=now) for code in plain
    )
    return ["-".join(code[at : at + 4] for at in range(0, _RECOVERY_LETTERS, 4)) for code in plain]
