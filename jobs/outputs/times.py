"""When a program wrote a stored file: noted with its object, and given back to the file that is put on another host.

Programs go on from the newest of their checkpoints, by these times.
"""

from __future__ import annotations

import re

from jobs.artifacts.objects import EPOCH
from jobs.models import StoredObject

# In the metadata of the object, which people can write too.
MTIME_NS = "mtime_ns"
_NUMBER = re.compile("[0-9]{1,19}")
_LATEST = (1 << 63) - 1


def mtime_ns(stored: StoredObject) -> int:
    """When its bytes were written: on the host from which they came; else, into the storage."""
    noted = stored.metadata.get(MTIME_NS)
    if isinstance(noted, str) and _NUMBER.fullmatch(noted) and int(noted) <= _LATEST:
        return int(noted)
    since = stored.created_at - EPOCH
    return (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000
