"""The deployment's own SSH key pair: generated on first use, the private half encrypted at rest."""

from __future__ import annotations

import io

import paramiko
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.conf import settings
from django.utils import timezone

from agents.infra import secrets
from agents.infra.secrets import SecretUnreadable
from agents.models import Keypair

# The type that callers hold and pass on without knowing the SSH library.
PrivateKey = paramiko.PKey
# A deployment has one key pair. Its fixed primary key makes "first use" safe between processes.
PAIR_ID = 1


class KeyUnreadable(SecretUnreadable):
    """The stored private key cannot be decrypted with this data directory's key."""


def public_line() -> str:
    """The line that belongs into a host's authorized_keys."""
    return _pair().public_line


def private_key() -> PrivateKey:
    """Decrypt the private key. Raises KeyUnreadable."""
    return paramiko.Ed25519Key.from_private_key(io.StringIO(private_text()))


def private_text() -> str:
    """The private key as OpenSSH writes it, for a process that has no database. Raises KeyUnreadable."""
    try:
        return secrets.decrypt(_pair().private_encrypted).decode()
    except SecretUnreadable:
        raise KeyUnreadable(
            "The deployment's SSH key was encrypted with another key than this data directory's. "
            "Restore the data directory that belongs to this database."
        ) from None


def check_private_key() -> None:
    """Raise KeyUnreadable if the deployment has a key, and this data directory cannot decrypt it."""
    if Keypair.objects.filter(pk=PAIR_ID).exists():
        private_key()


def _pair() -> Keypair:
    found = Keypair.objects.filter(pk=PAIR_ID).first()
    return found or Keypair.objects.get_or_create(pk=PAIR_ID, defaults=_new_pair())[0]


def _new_pair() -> dict[str, object]:
    key = Ed25519PrivateKey.generate()
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return {
        "created_at": timezone.now(),
        "public_line": f"{public.decode()} trainyard-{settings.DEPLOYMENT}",
        "private_encrypted": secrets.encrypt(secret),
    }
