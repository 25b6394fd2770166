"""Secrets that a deployment makes for itself on its first start, one file each, readable by its owner only."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path

from cryptography.fernet import Fernet
from django.core.exceptions import ImproperlyConfigured


class UnsafeFile(ImproperlyConfigured):
    """A secret file that others could read, or that is empty. The message tells the cure."""


def private_directory(path: Path) -> Path:
    """The directory, made for its owner only. One that exists keeps its mode: the operator chose it."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def read_or_create(path: Path, make: Callable[[], str]) -> str:
    """The secret in `path`; made on the first call, by whichever of several processes comes first."""
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
    """Publish a whole file or none, and never over one that is there: link() refuses where rename() would not."""
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
    """What Django signs sessions and tokens with."""
    return read_or_create(keys / "secret-key", lambda: secrets.token_urlsafe(50))


def field_keys(keys: Path) -> list[str]:
    """What columns are encrypted with: Fernet keys, one a line, the newest first. Old lines still decrypt."""
    return read_or_create(keys / "field-key", lambda: Fernet.generate_key().decode()).split()


def deployment(keys: Path) -> str:
    """The name by which hosts tell deployments apart. Not a secret, but lost together with the keys."""
    return read_or_create(keys / "deployment", lambda: f"ty-{secrets.token_hex(6)}")
