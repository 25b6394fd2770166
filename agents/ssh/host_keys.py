"""Host keys as one line of text, 'ssh-ed25519 AAAA...': the form that is pinned, compared and shown to people."""

from __future__ import annotations

import base64
import binascii
import hashlib


class InvalidHostKey(ValueError):
    """The text is not a public key of the form 'ssh-ed25519 AAAA...'."""


def parse(line: str) -> tuple[str, bytes]:
    """(type, blob) of a key line; a comment behind the key is ignored."""
    parts = line.split()
    if len(parts) < 2:
        raise InvalidHostKey(f"{line[:80]!r} is not a public key of the form 'ssh-ed25519 AAAA...'")
    try:
        blob = base64.b64decode(parts[1], validate=True)
    except (binascii.Error, ValueError):
        raise InvalidHostKey(f"{line[:80]!r} is not a public key: its second word is not base64") from None
    return parts[0], blob


def fingerprint(line: str) -> str:
    """The fingerprint as `ssh-keygen -l` shows it."""
    digest = hashlib.sha256(parse(line)[1]).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def same_key(one: str, other: str) -> bool:
    return parse(one) == parse(other)


def algorithms(line: str) -> tuple[str, ...]:
    """The signature algorithms with which a machine can prove that it has this key."""
    kind = parse(line)[0]
    return ("rsa-sha2-512", "rsa-sha2-256") if kind == "ssh-rsa" else (kind,)
