"""The console's seal: what a host brings back under it, the console once gave to that very host.

On a host, a job is the same Unix user as our runner: it can write whatever it likes into our directory there. So a run
that the database does not know, or a mark later than its own, means something only under a seal: a MAC over what it
is, whose it is and where it was given, by a key that never leaves the console. The key is made of the data directory's
(`keys/field-key`), not kept in a row: a database that is restored from before there were seals must know them too.

A seal is no secret, and is no proof of time: an old one stays true. Who asks has to see to that (recovery.py).
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
    """To whom a seal is given: a login on a machine that shows this key, and the row by which we know it."""

    host_id: int
    user: str
    key: str

    @classmethod
    def of(cls, host: Host) -> SealOwner:
        return cls(host.pk, host.user, host.pinned_key)


def seal_of_run(bearer: SealOwner, run: str) -> str:
    """Goes with the start and with the stop of a run.

    Not bound to the row: a host that was added after the backup, and is added again, is the same machine.
    """
    return _seal(_keys()[0], "run", bearer.user, bearer.key, run)


def is_seal_of_run(bearer: SealOwner, run: str, seal: str) -> bool:
    return any(_same(seal, _seal(key, "run", bearer.user, bearer.key, run)) for key in _keys())


def seal_of_mark(bearer: SealOwner, mark: int) -> str:
    """Goes with a mark. Bound to the row too, which has a clock of its own; images of machines share their key."""
    return _seal(_keys()[0], "mark", bearer.host_id, bearer.user, bearer.key, mark)


def is_seal_of_mark(bearer: SealOwner, mark: int, seal: str) -> bool:
    words = (bearer.host_id, bearer.user, bearer.key, mark)
    return any(_same(seal, _seal(key, "mark", *words)) for key in _keys())


def _keys() -> list[bytes]:
    """The first seals, every one is known again: that is how keys are rotated."""
    return [_mac(key.encode() if isinstance(key, str) else key, _PURPOSE) for key in settings.FIELD_KEYS]


def _seal(key: bytes, kind: str, *words: str | int) -> str:
    # JSON, so that no two lists of words are the same text.
    return _mac(key, json.dumps([kind, settings.DEPLOYMENT, *words]).encode()).hex()


def _mac(key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, hashlib.sha256)


def _same(told: str, true: str) -> bool:
    return hmac.compare_digest(told.encode(), true.encode())
