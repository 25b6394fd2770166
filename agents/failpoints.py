"""Named points at which a test kills or stops this very process. In the product they cost one comparison.

`TRAINYARD_FAILPOINT=take.after` kills at that point, `take.after:stop` stops there (SIGSTOP). A directory's path
arms points while the process runs: a file in it named like the point, empty or holding the word stop, fires once.
"""

from __future__ import annotations

import os
import signal

ARMED = os.environ.get("TRAINYARD_FAILPOINT", "")


def failpoint(name: str) -> None:
    if not ARMED:
        return
    if "/" in ARMED:
        _from_directory(os.path.join(ARMED, name))
        return
    point, _, how = ARMED.partition(":")
    if point == name:
        _fire(how)


def _from_directory(path: str) -> None:
    try:
        with open(path, encoding="ascii") as file:
            how = file.read().strip()
        os.unlink(path)  # of several processes that arrive, the one that removes it fires
    except OSError:
        return
    _fire(how)


def _fire(how: str) -> None:
    os.kill(os.getpid(), signal.SIGSTOP if how == "stop" else signal.SIGKILL)
