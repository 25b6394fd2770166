"""Small secrets at rest: encrypted with the data directory's keys, as the deployment's SSH key is (keys.py)."""

from __future__ import annotations

import json
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings


class Unreadable(Exception):
    """It was sealed with another data directory's key."""


def encrypt(value: dict[str, Any]) -> bytes:
    return _fernet().encrypt(json.dumps(value).encode())


def decrypt(data: bytes | memoryview) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(_fernet().decrypt(bytes(data)))
    except InvalidToken:
        raise Unreadable("It was encrypted with another data directory's key. Enter it again.") from None
    return found


def _fernet() -> MultiFernet:
    return MultiFernet([Fernet(key) for key in settings.FIELD_KEYS])
