"""One thread of a process that tells others something, so that whoever has news never waits for a broker.

What gathers while it speaks is joined. Nothing is kept for long: what is told here are hints and doorbells, which may
be lost.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Hashable
from typing import Generic, TypeVar

Address = TypeVar("Address", bound=Hashable)
Word = TypeVar("Word", bound=Hashable)


class Outbox(Generic[Address, Word]):
    """`teller` is called once, in the outbox's own thread; what it returns gets all that has gathered, and must not
    raise."""

    def __init__(self, name: str, teller: Callable[[], Callable[[dict[Address, set[Word]]], None]]) -> None:
        self._name, self._teller = name, teller
        self._waiting: dict[Address, set[Word]] = {}
        self._changed = threading.Condition()
        self._started = False
        # A forked child has no threads of its parent, and maybe a lock that one of them held.
        os.register_at_fork(after_in_child=self._begin)

    def post(self, address: Address, words: Collection[Word] = ()) -> None:
        """Never waits, never raises."""
        with self._changed:
            self._waiting.setdefault(address, set()).update(words)
            if not self._started:
                self._started = True
                # A daemon: no exit of a process waits for it.
                threading.Thread(target=self._work, name=self._name, daemon=True).start()
            self._changed.notify()

    def _begin(self) -> None:
        self._waiting = {}
        self._changed = threading.Condition()
        self._started = False

    def _work(self) -> None:
        tell = self._teller()
        while True:
            with self._changed:
                while not self._waiting:
                    self._changed.wait()
                batch, self._waiting = self._waiting, {}
            tell(batch)
