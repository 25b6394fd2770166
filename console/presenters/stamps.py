"""The stamp of a part of a page: a text that changes whenever what it is made of changes."""

from __future__ import annotations

import hashlib


def digest(what: object) -> str:
    return hashlib.sha1(repr(what).encode(), usedforsecurity=False).hexdigest()
