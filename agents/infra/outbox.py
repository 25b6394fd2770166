"""An outbox in memory: one thread of the process sends, so that the code that has something to send never waits.

What is posted while the thread sends is joined into the next batch. Nothing is stored: hints and wake-ups are sent this
way, and both may be lost.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item", bound=Hashable)

# Longer than the timeout of the Redis client.
FLUSH_AT_EXIT_S = 6.0


class Outbox(Generic[Key, Item]):
    """Sends, from a thread of its own, the items that were posted under each key.

    `make_sender` is called once, in that thread. The sender that it returns is called with each batch; it must not
    raise. `rest_s`: a key that was sent rests for so long, and what is posted under it meanwhile is sent after that.
    Other keys do not wait for it.
    """

    def __init__(
        self,
        name: str,
        make_sender: Callable[[], Callable[[dict[Key, set[Item]]], None]],
        rest_s: float = 0.0,
    ) -> None:
        self._name, self._make_sender, self._rest_s = name, make_sender, rest_s
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
        rests: dict[Key, float] = {}  # until when
        while batch := self._next(rests):
            send(batch)
            now = time.monotonic()
            rests = {key: until for key, until in rests.items() if until > now}
            rests.update(dict.fromkeys(batch, now + self._rest_s))

    def _next(self, rests: Mapping[Key, float]) -> dict[Key, set[Item]]:
        """Wait for the next batch: all keys that do not rest; at the end also those that do, and then nothing."""
        with self._changed:
            while not self._ending:
                now = time.monotonic()
                until = {key: rests.get(key, now) for key in self._waiting}
                if due := [key for key, at in until.items() if at <= now]:
                    return {key: self._waiting.pop(key) for key in due}
                self._changed.wait(min(until.values()) - now if until else None)
            batch, self._waiting = self._waiting, {}
            return batch
