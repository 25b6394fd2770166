"""Answers that many pages ask for at the same time: computed once, and kept for a short while by the web process.

So are failures of a machine elsewhere: whoever asks next is told at once, and does not wait as long as the first one.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable
from datetime import timedelta
from typing import Any, Generic, TypeVar
from weakref import WeakSet

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


_all: WeakSet[SharedAnswers[Any, Any] | KeptFailures] = WeakSet()


def forget_all() -> None:
    """Forget every answer and failure: for tests, of which each has rows of its own."""
    for answers in _all:
        answers.clear()


class SharedAnswers(Generic[Key, Value]):
    """Keeps at most `most` answers for `kept`. Threads that ask for the same answer wait for the first of them.

    Until `longest` an answer counts also after that, as long as the `stamp` that is given is what it was before it. An
    answer for which `keep` is False counts for the one who asked.
    """

    def __init__(self, kept: timedelta, most: int, longest: timedelta = timedelta(0)) -> None:
        _all.add(self)
        self._kept_s, self._longest_s = kept.total_seconds(), longest.total_seconds()
        self._most = most
        self._lock = threading.Lock()
        self._busy: dict[Key, threading.Lock] = {}
        self._known: dict[Key, tuple[float, Value, Hashable]] = {}

    def get(
        self,
        key: Key,
        compute: Callable[[], Value],
        stamp: Callable[[], Hashable] | None = None,
        keep: Callable[[Value], bool] = lambda _answer: True,
    ) -> Value:
        with self._lock:
            busy = self._busy.setdefault(key, threading.Lock())
        with busy:
            known = self._known.get(key)
            age_s = time.monotonic() - known[0] if known is not None else math.inf
            if known is not None and age_s < self._kept_s:
                return known[1]
            try:
                # Read before the answer, which may be newer than it.
                now = stamp() if stamp is not None else None
                if known is not None and stamp is not None and age_s < self._longest_s and now == known[2]:
                    return known[1]
                value = compute()
                with self._lock:
                    self._known.pop(key, None)
                    if keep(value):
                        self._known[key] = time.monotonic(), value, now
            finally:
                with self._lock:
                    self._forget()
        return value

    def clear(self) -> None:
        with self._lock:
            self._known.clear()
            self._busy.clear()

    def _forget(self) -> None:
        """Forget the oldest answers. An answer that is being computed keeps its lock."""
        while len(self._known) > self._most:
            del self._known[next(iter(self._known))]
        for key in [key for key, lock in self._busy.items() if key not in self._known and not lock.locked()]:
            del self._busy[key]


class KeptFailures:
    """Remembers failures of these `kinds` for a while, at most `most` of them."""

    def __init__(self, kept: timedelta, most: int, kinds: tuple[type[Exception], ...]) -> None:
        _all.add(self)
        self._kept_s, self._most, self._kinds = kept.total_seconds(), most, kinds
        self._lock = threading.Lock()
        self._known: dict[Hashable, tuple[float, Exception]] = {}

    def call(self, key: Hashable, act: Callable[[], Value], keep: bool = True) -> Value:
        """The answer of `act`. Raises what it raises; or, without calling it, what it has raised a short while ago.
        What it raises is remembered if `keep`."""
        self.raise_known(key)
        try:
            return act()
        except self._kinds as problem:
            if keep:
                self._remember(key, problem)
            raise

    def _remember(self, key: Hashable, problem: Exception) -> None:
        with self._lock:
            self._known.pop(key, None)
            self._known[key] = time.monotonic(), problem
            while len(self._known) > self._most:
                del self._known[next(iter(self._known))]

    def raise_known(self, key: Hashable) -> None:
        known = self._known.get(key)
        if known is not None and time.monotonic() - known[0] < self._kept_s:
            raise known[1].with_traceback(None)

    def clear(self) -> None:
        with self._lock:
            self._known.clear()
