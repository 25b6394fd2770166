"""Locks of files that are being written, which tell the sweep that their writer lives.

They only tell: no byte depends on them. A mount may have none (NFS without its lock service, some FUSE), and that is
no error of an upload. On others (CIFS) a lock keeps everybody out but the descriptor that has it, so who locks a file
writes through this descriptor alone.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from enum import Enum

log = logging.getLogger(__name__)

# What a lock of another answers; CIFS says EACCES.
_HELD = frozenset({errno.EAGAIN, errno.EACCES})
# A mistake of ours, not of the file system.
_OURS = frozenset({errno.EBADF})
# The file systems that have no locks and of which the log has told.
_told: set[int] = set()


class Lock(Enum):
    TAKEN = "taken"
    # By whoever has another descriptor, in any process.
    HELD = "held"
    # The file system has no locks.
    NONE = "none"


def take(descriptor: int) -> Lock:
    """Lock the file, open for writing, until this descriptor is closed. Waits for nobody."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as problem:
        if problem.errno in _OURS:
            raise
        if problem.errno in _HELD:
            return Lock.HELD
        _tell(os.fstat(descriptor).st_dev, problem)
        return Lock.NONE
    return Lock.TAKEN


def _tell(device: int, problem: OSError) -> None:
    if device in _told:
        return
    _told.add(device)
    log.warning(
        "The file system of stored files has no locks (%s). Files are stored all the same; what a crash has left there "
        "half written is removed later.",
        problem.strerror,
    )
