"""Gives the shells of a web process their share of the event loop, so that shells that print without end delay nobody.

A shell that has output asks for a turn. A shell that has not printed much lately reads at once: an echo waits for
nothing. Shells that print take turns; if they are several, they share a rate, and between two turns the loop and the
processor are free for everybody else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from weakref import WeakKeyDictionary

# Reads some output. Returns how many bytes it read; 0 when there is nothing to read now.
Step = Callable[[], int]

# The most bytes of one turn, and the bytes that make a shell one that prints: more than an echo or a small answer.
TURN_BYTES, MUCH = 64 * 1024, 8 * 1024
# How long a shell counts as one that prints.
RECENT_S = 0.1
# Bytes a second of all shells that print: of one that prints alone, and of several together.
ALONE_RATE, SHARED_RATE = 400e6, 6e6
# After the turn of one of several shells, the others have the loop for so many times as long as the turn took, and as
# the loop was late: on a busy machine the rate alone would leave nobody room.
REST = 3


class OutputShare:
    """The turns of all shells on one event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Step] = deque()
        self._printed_at: dict[Step, float] = {}
        self._free_at = self._late = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def ask(self, step: Step) -> None:
        """Give this shell a turn: now if it has not printed much lately, otherwise after those that wait."""
        if step in self._waiting:
            return
        if step in self._printing():
            self._waiting.append(step)
        else:
            self._take_turn(step)
        self._go_on()

    def is_anybody_printing(self) -> bool:
        """Whether a shell may have to wait for its turn. True somewhat longer than the last one prints."""
        return bool(self._printed_at or self._waiting)

    def leave(self, step: Step) -> None:
        """The shell has ended."""
        self._printed_at.pop(step, None)
        if step in self._waiting:
            self._waiting.remove(step)

    def _take_turn(self, step: Step) -> None:
        taken, begun = 0, self._loop.time()
        while taken < TURN_BYTES and (size := step()):
            taken += size
        if taken >= MUCH:
            now = self._loop.time()
            self._printed_at[step] = now
            self._free_at = max(now, self._free_at) + self._rest_s(taken, now - begun)
        if taken >= TURN_BYTES:
            self._waiting.append(step)

    def _rest_s(self, taken: int, took_s: float) -> float:
        """How long no shell has a turn after this one."""
        if len(self._printing()) == 1:
            return taken / ALONE_RATE
        return max(taken / SHARED_RATE, REST * (took_s + self._late))

    def _printing(self) -> Collection[Step]:
        """The shells that print. One that waits for its turn still does, however long it has to wait."""
        if not self._printed_at:
            return ()
        since = self._loop.time() - RECENT_S
        for step in [
            step for step, at in self._printed_at.items() if at < since and step not in self._waiting
        ]:
            del self._printed_at[step]
        return self._printed_at

    def _go_on(self) -> None:
        if self._waiting and self._timer is None:
            self._timer = self._loop.call_at(self._free_at, self._next)

    def _next(self) -> None:
        self._timer = None
        self._late = max(0.0, self._loop.time() - self._free_at)
        if self._waiting:
            self._take_turn(self._waiting.popleft())
        self._go_on()


_shares: WeakKeyDictionary[asyncio.AbstractEventLoop, OutputShare] = WeakKeyDictionary()


def of_this_loop() -> OutputShare:
    loop = asyncio.get_running_loop()
    if loop not in _shares:
        _shares[loop] = OutputShare()
    return _shares[loop]
