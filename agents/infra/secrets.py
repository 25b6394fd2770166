"""Encryption of secrets at rest, with the keys of the data directory (`keys/field-key`).

The database never holds a secret in the clear: the deployment's SSH key, the addresses of webhooks and what belongs to
them.
"""

from __future__ import annotations

import json
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

from agents.infra.texts import said


class SecretUnreadable(Exception):
    """The secret was encrypted with a key that this data directory does not have."""


def encrypt(secret: bytes) -> bytes:
    return _fernet().encrypt(secret)


def decrypt(data: bytes | memoryview) -> bytes:
    """Raises SecretUnreadable."""
    try:
        return _fernet().decrypt(bytes(data))
    except InvalidToken:
        raise SecretUnreadable(
            said("It was encrypted with another data directory's key. Enter it again.")
        ) from None


def encrypt_again(data: bytes | memoryview) -> bytes:
    """The same secret, encrypted with the first key. Raises SecretUnreadable."""
    try:
        return _fernet().rotate(bytes(data))
    except InvalidToken:
        raise SecretUnreadable(said("It was encrypted with another data directory's key.")) from None


def is_under_first_key(data: bytes | memoryview) -> bool:
    try:
        Fernet(settings.FIELD_KEYS[0]).decrypt(bytes(data))
    except InvalidToken:
        return False
    return True


def encrypt_fields(fields: dict[str, Any]) -> bytes:
    return encrypt(json.dumps(fields).encode())


def decrypt_fields(data: bytes | memoryview) -> dict[str, Any]:
    """Raises SecretUnreadable."""
    fields: dict[str, Any] = json.loads(decrypt(data))
    return fields


def _fernet() -> MultiFernet:
    """The first key encrypts and every key decrypts: that is how keys are rotated."""
    return MultiFernet([Fernet(key) for key in settings.FIELD_KEYS])
