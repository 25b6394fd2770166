"""An outbox in memory: one thread of the process sends, so that the code that has something to send never waits.

What is posted while the thread sends is joined into the next batch. Nothing is stored: hints and wake-ups are sent this
way, and both may be lost.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Collection, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item", bound=Hashable)

# Longer than the timeout of the Redis client.
FLUSH_AT_EXIT_S = 6.0


class Outbox(Generic[Key, Item]):
    """Sends, from a thread of its own, the items that were posted under each key.

    `make_sender` is called once, in that thread. The sender that it returns is called with each batch; it must not
    raise.
    """

    def __init__(self, name: str, make_sender: Callable[[], Callable[[dict[Key, set[Item]]], None]]) -> None:
        self._name, self._make_sender = name, make_sender
        self._waiting: dict[Key, set[Item]] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._ending = False
        # A forked child has none of the parent's threads, but may have a lock that one of them held.
        os.register_at_fork(after_in_child=self._reset)
        atexit.register(self.finish)

    def post(self, key: Key, items: Collection[Item] = ()) -> None:
        """Leave items to be sent. Never waits and never raises."""
        with self._changed:
            self._waiting.setdefault(key, set()).update(items)
            if self._thread is None:
                # A daemon thread: the exit of the process waits for it no longer than `finish` does.
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify()

    def finish(self) -> None:
        """Send what is left before the process ends, within FLUSH_AT_EXIT_S.

        A thread that is stopped in the middle of sending may hold a lock of its client, and the interpreter would wait
        for that lock for ever as it ends.
        """
        with self._changed:
            thread, self._ending = self._thread, True
            self._changed.notify()
        if thread is not None:
            thread.join(FLUSH_AT_EXIT_S)

    def _reset(self) -> None:
        self._waiting = {}
        self._changed = threading.Condition()
        self._thread = None

    def _work(self) -> None:
        send = self._make_sender()
        while True:
            with self._changed:
                while not self._waiting:
                    if self._ending:
                        return
                    self._changed.wait()
                batch, self._waiting = self._waiting, {}
            send(batch)
