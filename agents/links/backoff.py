"""How long to wait before a host is dialled again. Pure: the dice are an argument.

Newer sshd count failed and abandoned logins by source address and then refuse everybody behind it, so what cannot mend
itself within seconds is not tried within seconds: a refused login needs a person, and so does a changed host key.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum


class Trouble(StrEnum):
    LOST = "lost"  # it was up and the stream ended: a cut cable or a restarted sshd, most likely back at once
    AWAY = "away"  # nothing answers
    BUSY = "busy"  # sshd answers but takes no more logins
    BROKEN = "broken"  # logged in, but the runner cannot be put there or started
    LOGIN = "login"
    KEY = "key"


# First wait and longest wait in seconds; each further trouble of the same kind doubles it.
WAITS: dict[Trouble, tuple[float, float]] = {
    Trouble.LOST: (0.2, 5.0),
    Trouble.AWAY: (1.0, 20.0),
    Trouble.BUSY: (1.0, 20.0),
    Trouble.BROKEN: (2.0, 60.0),
    Trouble.LOGIN: (90.0, 600.0),
    Trouble.KEY: (90.0, 600.0),
}
SPREAD = 0.3


class Backoff:
    """Counts troubles in a row. `dice` gives numbers in [0, 1): hosts that fell together must not return together."""

    def __init__(self, dice: Callable[[], float]) -> None:
        self._dice = dice
        self._kind: Trouble | None = None
        self._count = 0

    def wait_s(self, kind: Trouble) -> float:
        self._count = self._count + 1 if kind == self._kind else 1
        self._kind = kind
        first, longest = WAITS[kind]
        wait = min(longest, first * float(1 << min(self._count - 1, 16)))
        return wait * (1 - SPREAD / 2 + SPREAD * self._dice())

    def well(self) -> None:
        """The link has been up for a while: the next trouble is a new one."""
        self._kind, self._count = None, 0
