"""The directory for temporary files of a run (TMPDIR): made before its command, deleted when the run is closed.

Its path is short, because programs make sockets in it, whose paths the kernel limits to 107 bytes. So it is not in the
run's directory but in the login's TMPDIR or in /tmp.
"""

from __future__ import annotations

import contextlib
import os
import stat

from agents.runner.files import delete_tree
from agents.runner.runs.facts import Facts

LONGEST_BASE = 40


def scratch_path(mark: str) -> str:
    """Where the directory of the run with this mark is. The mark's random part makes it the run's own."""
    base = os.environ.get("TMPDIR") or "/tmp"
    if not os.path.isabs(base) or len(base) > LONGEST_BASE or not os.access(base, os.W_OK | os.X_OK):
        base = "/tmp"
    return os.path.join(base, "trainyard-" + mark.partition(":")[0])


def make_scratch(path: str) -> bool:
    """False where it cannot be made: the run then has no TMPDIR of its own."""
    try:
        os.mkdir(path, 0o700)
    except OSError:
        return False
    return True


def remove_scratch(facts: Facts) -> str:
    """Delete the directory with all that is in it, if it is one that a runner of ours made for this run. Returns words
    for a person where something of it stays."""
    path, mark = facts.get("tmp"), facts["mark"].partition(":")[0]
    if not isinstance(path, str) or not mark or os.path.basename(path) != "trainyard-" + mark:
        return ""
    with contextlib.suppress(OSError):
        found = os.lstat(path)
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not delete_tree(path):
            return "temporary files in %s could not be removed" % path
    return ""
