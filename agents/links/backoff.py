"""How long to wait before a host is dialled again. Pure: the source of random numbers is an argument.

Newer sshd counts failed and abandoned logins by source address and then refuses everybody at that address. So a failure
that cannot end within seconds is not retried within seconds: a refused login needs a person, and so does a changed host
key.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum


class FailureKind(StrEnum):
    LOST = "lost"  # the link was up and its stream ended: a cut cable or a restarted sshd, most likely back at once
    UNREACHABLE = "unreachable"  # the host does not answer
    BUSY = "busy"  # sshd answers but accepts no more logins
    BROKEN = "broken"  # logged in, but the runner cannot be installed or started
    LOGIN = "login"
    KEY = "key"
    MISBEHAVED = (
        "misbehaved"  # the row of the host says when it may be dialled again (agents/hosts/misbehaviour.py)
    )


# First and longest wait in seconds; each further failure of the same kind doubles the wait.
WAITS: dict[FailureKind, tuple[float, float]] = {
    FailureKind.LOST: (0.2, 5.0),
    FailureKind.UNREACHABLE: (1.0, 20.0),
    FailureKind.BUSY: (1.0, 20.0),
    FailureKind.BROKEN: (2.0, 60.0),
    FailureKind.LOGIN: (90.0, 600.0),
    FailureKind.KEY: (90.0, 600.0),
    FailureKind.MISBEHAVED: (60.0, 60.0),
}
JITTER = 0.3


class Backoff:
    """Counts failures in a row of the same kind.

    `random_unit` returns numbers in [0, 1) for the jitter: hosts that failed together must not be dialled together.
    """

    def __init__(self, random_unit: Callable[[], float]) -> None:
        self._random_unit = random_unit
        self._kind: FailureKind | None = None
        self._count = 0

    def wait_s(self, kind: FailureKind) -> float:
        self._count = self._count + 1 if kind == self._kind else 1
        self._kind = kind
        first, longest = WAITS[kind]
        wait = min(longest, first * float(1 << min(self._count - 1, 16)))
        return wait * (1 - JITTER / 2 + JITTER * self._random_unit())

    def reset(self) -> None:
        """Call this when the link has been up for a while: the next failure counts as the first one."""
        self._kind, self._count = None, 0
