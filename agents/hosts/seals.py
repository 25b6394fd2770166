"""Seals: what a host reports under a seal, the console once gave to that very host.

On a host, user programs run as the same Unix user as our runner: they can write anything into our directory there. So a
run that the database does not know, or a mark later than the database's, counts only under a seal: a MAC over the run
or mark, the deployment, and the host that it was given to. The key never leaves the console. It is derived from the key
of the data directory (`keys/field-key`) and not kept in a row, so that seals are also known after the restore of a
database that is older than the first seal.

A seal is no secret, and it says nothing about time: an old seal stays valid. The caller must allow for that
(recovery.py).
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass

from django.conf import settings

from agents.models import Host

_PURPOSE = b"trainyard seal 1"


@dataclass(frozen=True, slots=True)
class SealOwner:
    """The host that a seal is given to: a login on a machine with this host key, and the row of the host."""

    host_id: int
    user: str
    key: str

    @classmethod
    def of(cls, host: Host) -> SealOwner:
        return cls(host.pk, host.user, host.pinned_key)


def seal_of_run(owner: SealOwner, run: str) -> str:
    """The seal that is sent with the start and with the stop of a run.

    It is not bound to the row: a host that was added after the backup, and is added again, is the same machine.
    """
    return _seal(_keys()[0], "run", owner.user, owner.key, run)


def is_seal_of_run(owner: SealOwner, run: str, seal: str) -> bool:
    return any(_equal(seal, _seal(key, "run", owner.user, owner.key, run)) for key in _keys())


def seal_of_mark(owner: SealOwner, mark: int) -> str:
    """The seal of a mark.

    It is bound to the row too: each row counts its own marks, and machines made from one image share a host key.
    """
    return _seal(_keys()[0], "mark", owner.host_id, owner.user, owner.key, mark)


def is_seal_of_mark(owner: SealOwner, mark: int, seal: str) -> bool:
    parts = (owner.host_id, owner.user, owner.key, mark)
    return any(_equal(seal, _seal(key, "mark", *parts)) for key in _keys())


def _keys() -> list[bytes]:
    """The first key makes seals and every key verifies them: that is how keys are rotated."""
    return [_mac(key.encode() if isinstance(key, str) else key, _PURPOSE) for key in settings.FIELD_KEYS]


def _seal(key: bytes, kind: str, *parts: str | int) -> str:
    # JSON, so that two different lists never give the same text.
    return _mac(key, json.dumps([kind, settings.DEPLOYMENT, *parts]).encode()).hex()


def _mac(key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, hashlib.sha256)


def _equal(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())
