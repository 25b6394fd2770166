"""Keeps the token of each console: in the keyring of the system if the package `keyring` and a keyring are there, else
in a file that only its owner may read."""

from __future__ import annotations

import importlib
import importlib.util
import os
import stat
import sys
from typing import Any

from . import configuration
from .configuration import Console
from .errors import ClientError

FILE = "tokens.json"
SERVICE = "trainyard"


def token_of(console: Console) -> str:
    """The token for this console. The variable is for scripts, and wins."""
    given = os.environ.get("TRAINYARD_TOKEN", "").strip()
    if given:
        return given
    found = _from_keyring(console.url) if console.keyring else _from_file().get(console.url, "")
    if not found:
        raise ClientError(f"You are not logged in to {console.url}.", f"Run: trainyard login {console.url}")
    return found


def keep(console: Console, token: str) -> None:
    """Keep a token; `console.keyring` says afterwards where it is."""
    ring = _keyring()
    if ring is not None:
        try:
            ring.set_password(SERVICE, console.url, token)
            console.keyring = True
            _forget_in_file(console.url)
            return
        except Exception as problem:  # keyrings raise what they like; the file serves as well
            print(
                f"trainyard: the keyring does not take the token ({type(problem).__name__}).", file=sys.stderr
            )
    console.keyring = False
    configuration.write_json(FILE, {**_from_file(), console.url: token})


def forget(console: Console) -> None:
    _forget_in_file(console.url)
    ring = _keyring() if console.keyring else None
    if ring is not None:
        try:
            ring.delete_password(SERVICE, console.url)
        except Exception as problem:
            print(f"trainyard: the keyring keeps the token ({type(problem).__name__}).", file=sys.stderr)


def _forget_in_file(url: str) -> None:
    kept = _from_file()
    if kept.pop(url, None) is not None:
        configuration.write_json(FILE, kept)


def _from_file() -> dict[str, str]:
    path = configuration.directory() / FILE
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return {}
    if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
        raise ClientError(f"Others may read {path}, which has your tokens.", f"Run: chmod 600 {path}")
    return {str(url): str(token) for url, token in configuration.read_json(FILE).items()}


def _from_keyring(url: str) -> str:
    ring = _keyring()
    if ring is None:
        raise ClientError("The token is in the keyring, which cannot be opened here.", "Log in again.")
    try:
        return ring.get_password(SERVICE, url) or ""
    except Exception as problem:
        raise ClientError(f"The keyring does not open: {type(problem).__name__}", "Unlock it.") from None


def _keyring() -> Any | None:
    """The package `keyring`, if it has a keyring that works. It takes long to load: it is asked only where needed."""
    if os.environ.get("TRAINYARD_KEYRING", "") == "0" or importlib.util.find_spec("keyring") is None:
        return None
    try:
        ring = importlib.import_module("keyring")
        return ring if ring.get_keyring().priority > 0 else None
    except Exception:
        return None
