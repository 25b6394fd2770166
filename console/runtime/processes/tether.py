"""Runs a command that dies when its parent process dies, even when the parent dies by SIGKILL.

Called as a file by supervisor.py: `python -I -S tether.py PARENT_PID COMMAND...`. The kernel keeps the
request across exec. This is a separate program, because code between fork and exec of a process with threads may
deadlock.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def tie(parent: int) -> None:
    """Ask the kernel to send SIGKILL when the parent dies. Only Linux has this."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # the parent died before we could ask
            sys.exit(1)


if __name__ == "__main__":
    tie(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
