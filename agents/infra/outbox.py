"""One thread of a process that tells others something, so that whoever has news never waits for a broker.

What gathers while it speaks is joined. Nothing is kept for long: what is told here are hints and doorbells, which may
be lost.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Collection, Hashable
from typing import Generic, TypeVar

Address = TypeVar("Address", bound=Hashable)
Message = TypeVar("Message", bound=Hashable)

# Longer than a client of Redis waits for an answer.
FLUSH_AT_EXIT_S = 6.0


class Outbox(Generic[Address, Message]):
    """`teller` is called once, in the outbox's own thread; what it returns gets all that has gathered, and must not
    raise."""

    def __init__(
        self, name: str, teller: Callable[[], Callable[[dict[Address, set[Message]]], None]]
    ) -> None:
        self._name, self._teller = name, teller
        self._waiting: dict[Address, set[Message]] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._ending = False
        # A forked child has no threads of its parent, and maybe a lock that one of them held.
        os.register_at_fork(after_in_child=self._begin)
        atexit.register(self.finish)

    def post(self, address: Address, words: Collection[Message] = ()) -> None:
        """Never waits, never raises."""
        with self._changed:
            self._waiting.setdefault(address, set()).update(words)
            if self._thread is None:
                # A daemon: no exit of a process waits for it longer than `finish` does.
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify()

    def finish(self) -> None:
        """The last words are said before the process ends.

        A thread that is cut off in the middle of one may hold a lock of its client, and the interpreter's end would
        wait for that for ever.
        """
        with self._changed:
            thread, self._ending = self._thread, True
            self._changed.notify()
        if thread is not None:
            thread.join(FLUSH_AT_EXIT_S)

    def _begin(self) -> None:
        self._waiting = {}
        self._changed = threading.Condition()
        self._thread = None

    def _work(self) -> None:
        tell = self._teller()
        while True:
            with self._changed:
                while not self._waiting:
                    if self._ending:
                        return
                    self._changed.wait()
                batch, self._waiting = self._waiting, {}
            tell(batch)
