"""The secrets that a deployment makes at its first start: one file each, which only its owner can read."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path

from cryptography.fernet import Fernet
from django.core.exceptions import ImproperlyConfigured


class UnsafeFile(ImproperlyConfigured):
    """A secret file is empty, or other users can read it. The message says the cure."""


def private_directory(path: Path) -> Path:
    """Make a directory that only its owner can use. An existing one is inside the data directory, which is closed."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def read_or_create(path: Path, make: Callable[[], str]) -> str:
    """The secret in `path`. The first call makes it; of several processes, the first one does."""
    try:
        return read(path)
    except FileNotFoundError:
        create(path, make())
        return read(path)


def read(path: Path) -> str:
    with path.open(encoding="ascii") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        secret = file.read().strip()
    if mode & 0o077:
        raise UnsafeFile(f"{path} can be read by others (mode {mode:o}). Run: chmod 600 {path}")
    if not secret:
        raise UnsafeFile(f"{path} is empty. Put it back from your backup, or delete it to get a new secret.")
    return secret


def create(path: Path, secret: str) -> None:
    """Write a complete file or none.

    An existing file is never replaced: link() fails where rename() would replace it.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    with os.fdopen(
        os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii"
    ) as file:
        file.write(secret + "\n")
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()


def secret_key(keys: Path) -> str:
    """The key with which Django signs sessions and tokens."""
    return read_or_create(keys / "secret-key", lambda: secrets.token_urlsafe(50))


def field_keys(keys: Path) -> list[str]:
    """The Fernet keys that encrypt columns, one per line, the newest first. Older keys still decrypt."""
    return read_or_create(keys / "field-key", lambda: Fernet.generate_key().decode()).split()


def deployment(keys: Path) -> str:
    """The name by which hosts distinguish deployments. It is not a secret, but it belongs with the keys in a backup."""
    return read_or_create(keys / "deployment", lambda: f"ty-{secrets.token_hex(6)}")
