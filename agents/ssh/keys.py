"""The deployment's own SSH key: made on first use, its private half encrypted at rest."""

from __future__ import annotations

import io

import paramiko
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.conf import settings
from django.utils import timezone

from agents.models import Keypair

# What others hold and hand on without knowing the library behind it.
Private = paramiko.PKey
ONLY = 1  # one pair per deployment; its primary key makes "first use" safe between processes


class KeyUnreadable(Exception):
    """The stored private key cannot be decrypted with this data directory's key."""


def public_line() -> str:
    """What belongs into a host's authorized_keys."""
    return _pair().public_line


def private() -> Private:
    try:
        text = _fernet().decrypt(bytes(_pair().private_encrypted)).decode()
    except InvalidToken:
        raise KeyUnreadable(
            "The deployment's SSH key was encrypted with another key than this data directory's. "
            "Restore the data directory that belongs to this database."
        ) from None
    return paramiko.Ed25519Key.from_private_key(io.StringIO(text))


def _fernet() -> MultiFernet:
    """The first key encrypts, every key decrypts: that is how keys are rotated."""
    return MultiFernet([Fernet(key) for key in settings.FIELD_KEYS])


def _pair() -> Keypair:
    found = Keypair.objects.filter(pk=ONLY).first()
    return found or Keypair.objects.get_or_create(pk=ONLY, defaults=_fresh())[0]


def _fresh() -> dict[str, object]:
    key = Ed25519PrivateKey.generate()
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return {
        "created_at": timezone.now(),
        "public_line": f"{public.decode()} trainyard-{settings.DEPLOYMENT}",
        "private_encrypted": _fernet().encrypt(secret),
    }
