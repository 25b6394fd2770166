"""Force a race of two threads on real connections: the first stops at one of its statements, while the second acts.

The second then either ends, or waits for a lock that the first holds. That is seen, not guessed: PostgreSQL tells who
waits. SQLite has one writer at a time, who is given a moment.
"""

from __future__ import annotations

import contextlib
import threading
import time

import psycopg
from django.db import connection
from django.db.backends.sqlite3.base import SQLiteCursorWrapper

from tests.harness.wait_and_processes import wait_for

WAITS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)
MOMENT_S = 0.5
LIMIT_S = 60


class Actor:
    """One side of the race, in a thread of its own. `result` is what it returned or raised."""

    def __init__(self, act):
        self.act, self.result = act, None
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        try:
            self.result = self.act()
        except Exception as problem:
            self.result = problem
        finally:
            connection.close()

    @property
    def over(self):
        return not self.thread.is_alive()


def race(first, second, before=None, after=None):
    """Run both, and return what each returned or raised. `first` stops once, before (or after) its first statement
    with all of these words, until `second` is over or waits for a lock."""
    one, two = Actor(first), Actor(second)
    stopped, go_on = threading.Event(), threading.Event()
    verb, *words = (before or after).split()

    def stop(text):
        if threading.current_thread() is not one.thread or stopped.is_set():
            return
        # The verb is the first word: a SELECT FOR UPDATE is no UPDATE. A WITH may do anything.
        if text.lstrip().startswith((verb, "WITH")) and all(word in text for word in (verb, *words)):
            stopped.set()
            go_on.wait(LIMIT_S)

    with watching(stop if before else nothing, stop if after else nothing):
        one.thread.start()
        try:
            wait_for(lambda: stopped.is_set() or one.over, "the first to come to its statement", LIMIT_S)
            assert stopped.is_set(), f"the first had no {verb} with {words}: {one.result!r}"
            two.thread.start()
            began = time.monotonic()
            wait_for(lambda: two.over or waits(began), "the second to end or to wait for a lock", LIMIT_S)
        finally:
            go_on.set()
            for each in (one, two):
                if each.thread.ident:
                    each.thread.join(LIMIT_S)
    assert one.over and two.over, "both go on"
    return one.result, two.result


def nothing(text):
    pass


def waits(began):
    if connection.vendor == "sqlite":
        return time.monotonic() - began > MOMENT_S
    with connection.cursor() as cursor:
        cursor.execute(WAITS)
        return cursor.fetchone()[0] > 0


@contextlib.contextmanager
def watching(before, after):
    """Call `before` and `after` around each statement of this process, prepared or not."""
    owner = psycopg.Cursor if connection.vendor == "postgresql" else SQLiteCursorWrapper
    honest = owner.execute

    def execute(self, query, *args, **options):
        text = query.decode() if isinstance(query, bytes) else str(query)
        before(text)
        done = honest(self, query, *args, **options)
        after(text)
        return done

    owner.execute = execute
    try:
        yield
    finally:
        owner.execute = honest
