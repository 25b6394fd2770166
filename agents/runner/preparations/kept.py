"""The frames `kept` and `discard`: tells the console what is kept on this host, and removes what an admin picks."""

from __future__ import annotations

import collections
import math
import time
from typing import Any, Deque, Tuple

from agents.runner.background_tasks import BackgroundTasks
from agents.runner.cache.kept import check_name, discard, what_is_kept
from agents.runner.outbox import Outbox
from agents.runner.runs.known import Runs
from agents.runner.wire import Message

# How often it is told, how soon after something has changed, and after something was removed: the console takes one in
# two seconds. It asks for fifty removals at once.
EVERY_S, SOON_S, REMOVED_S, TIMEOUT_S = 600.0, 30.0, 5.0, 300.0
MOST_REMOVALS = 1000


class Kept:
    """Tells nothing before it is asked for (`watch`)."""

    def __init__(self, runs: Runs, out: Outbox, background: BackgroundTasks) -> None:
        self.runs, self.out, self.background = runs, out, background
        self.look_at = self.looked_at = -math.inf
        self.asked = False
        self.told: Any = None
        # What is to be removed, one after the other. The first is under way.
        self.removals: Deque[Tuple[str, str]] = collections.deque()

    def ask(self, asked: bool) -> None:
        """A console that is told anew knows nothing."""
        if asked and not self.asked:
            self.look_at, self.told = time.monotonic(), None
        self.asked = asked

    def look_soon(self, soon_s: float = SOON_S) -> None:
        """Something has come, or is used no more."""
        self.look_at = min(self.look_at, max(time.monotonic(), self.looked_at + soon_s))

    def tick(self, now: float) -> None:
        home = self.runs.require_home()
        is_due = self.asked and now >= self.look_at
        if is_due and self.background.start("kept", lambda: what_is_kept(home), self.tell, TIMEOUT_S):
            self.looked_at, self.look_at = now, now + EVERY_S
        self.remove_next()

    def tell(self, found: Any) -> None:
        if found is not None and found != self.told:
            self.told = found
            self.out.send(dict(found, t="kept"))

    def on_discard(self, message: Message, payload: bytes) -> None:
        kind, key = str(message["kind"]), str(message["key"])
        check_name(kind, key)
        if len(self.removals) >= MOST_REMOVALS:
            raise ValueError("too many removals are waiting")
        if (kind, key) not in self.removals:
            self.removals.append((kind, key))
        self.remove_next()

    def remove_next(self) -> None:
        """Begin with the first one, unless it is under way."""
        if not self.removals:
            return
        kind, key = self.removals[0]
        home = self.runs.require_home()

        def done(why: Any) -> None:
            self.removals.popleft()
            words = "it took too long" if why is None else why
            self.out.send({"t": "discarded", "kind": kind, "key": key, "why": words})
            self.look_soon(REMOVED_S)
            self.remove_next()

        self.background.start("discard", lambda: discard(home, kind, key), done, TIMEOUT_S)
