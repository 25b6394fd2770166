"""Host keys as one line of text: 'ssh-ed25519 AAAA...'. What is pinned, compared and shown to a person."""

from __future__ import annotations

import base64
import binascii
import hashlib


class InvalidHostKey(ValueError):
    """The text is not a public key of the form 'ssh-ed25519 AAAA...'."""


def parse(line: str) -> tuple[str, bytes]:
    """(type, blob) of a key line; a comment behind it does not count."""
    words = line.split()
    if len(words) < 2:
        raise InvalidHostKey(f"{line[:80]!r} is not a public key of the form 'ssh-ed25519 AAAA...'")
    try:
        blob = base64.b64decode(words[1], validate=True)
    except (binascii.Error, ValueError):
        raise InvalidHostKey(f"{line[:80]!r} is not a public key: its second word is not base64") from None
    return words[0], blob


def fingerprint(line: str) -> str:
    """As `ssh-keygen -l` shows it."""
    digest = hashlib.sha256(parse(line)[1]).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def same_key(one: str, other: str) -> bool:
    return parse(one) == parse(other)


def algorithms(line: str) -> tuple[str, ...]:
    """The signature algorithms by which a machine can show that it holds this key."""
    kind = parse(line)[0]
    return ("rsa-sha2-512", "rsa-sha2-256") if kind == "ssh-rsa" else (kind,)
