"""The wake-up lists of dispatchers: hints that go straight through Redis.

A Celery message does the same and is used while this is not possible. But it costs sender and receiver ten times as
much processor time, and a submitted job waits for that time. An entry is a list of hosts on which something else is
wanted; an empty entry says that waiting jobs may be placed; one below `watch`, that these hosts are to be asked for
something else than runs (agents/links/host_watch.py). Each dispatcher has a list of its own. From the common list
exactly one dispatcher takes each entry.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Collection, Sequence
from functools import cache

import redis
from django.conf import settings

log = logging.getLogger(__name__)

REDIS_UNAVAILABLE = (redis.RedisError, OSError)
# An entry that no dispatcher took is useless after this, because the timers have looked by then.
KEEP_S = 10
MAX_WAITING = 1_000
LISTEN_S = 2
ANSWER_S = 5.0
RETRY_S = 1.0


def push(name: str, hosts: Collection[int], watch: bool = False) -> None:
    """Add an entry to a list. Raises REDIS_UNAVAILABLE."""
    with _pushing_client().pipeline(transaction=False) as line:
        line.rpush(_key(name), json.dumps({"watch": sorted(hosts)} if watch else sorted(hosts)))
        line.ltrim(_key(name), -MAX_WAITING, -1)
        line.expire(_key(name), KEEP_S)
        line.execute()


def _key(name: str) -> str:
    return f"ty:bell:{name}"


@cache
def _pushing_client() -> redis.Redis:
    return client()


def client() -> redis.Redis:
    """A client with timeouts: a Redis that does not answer is unavailable."""
    return redis.Redis.from_url(settings.REDIS_URL, socket_connect_timeout=ANSWER_S, socket_timeout=ANSWER_S)


class Listener:
    """Takes entries from some lists, in a thread of its own. `on_entry` gets the hosts of each entry, `on_watch` those
    of an entry below `watch`; neither may take long."""

    def __init__(
        self,
        names: Sequence[str],
        on_entry: Callable[[list[int]], None],
        on_watch: Callable[[list[int]], None],
    ) -> None:
        self._keys = [_key(name) for name in names]
        self._on_entry, self._on_watch = on_entry, on_watch
        self._stopping = threading.Event()
        self._unavailable = False
        self._thread = threading.Thread(target=self._listen, name="wake-ups", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Does not wait for the thread: an entry that comes now is lost, as any hint may be."""
        self._stopping.set()

    def _listen(self) -> None:
        with client() as line:
            while not self._stopping.is_set():
                try:
                    entry = line.blpop(self._keys, timeout=LISTEN_S)
                    self._unavailable = False
                except REDIS_UNAVAILABLE as problem:
                    if not self._unavailable:
                        log.warning("Redis is unavailable (%s); hints come late.", type(problem).__name__)
                    self._unavailable = True
                    self._stopping.wait(RETRY_S)
                    continue
                if entry is not None and not self._stopping.is_set():
                    self._handle(entry[1])

    def _handle(self, entry: bytes) -> None:
        try:
            found = json.loads(entry)
            is_watch = isinstance(found, dict)
            hosts = [int(host) for host in (found["watch"] if is_watch else found)]
            (self._on_watch if is_watch else self._on_entry)(hosts)
        except Exception:  # it was only a hint
            log.exception("A hint could not be followed.")
