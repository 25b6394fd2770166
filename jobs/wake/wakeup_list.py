"""The bell at the dispatchers' door: a hint straight through Redis.

A Celery message does the same and stays as the way round, but costs both ends ten times as much processor time, which
is time that a submitted job waits. A word is a list of hosts on which something else is wanted; the empty one says that
somebody may be placed. It lies in the list of one dispatcher, or in everybody's, where exactly one of them takes it.
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
# Words that nobody took: worth nothing a moment later, because the clocks have looked by then.
KEEP_S = 10
MAX_WAITING = 1_000
LISTEN_S = 2
ANSWER_S = 5.0
REST_S = 1.0


def push(door: str, hosts: Collection[int]) -> None:
    """Raises what is in AWAY."""
    with _pushing_client().pipeline(transaction=False) as line:
        line.rpush(_key(door), json.dumps(sorted(hosts)))
        line.ltrim(_key(door), -MAX_WAITING, -1)
        line.expire(_key(door), KEEP_S)
        line.execute()


def _key(door: str) -> str:
    return f"ty:bell:{door}"


@cache
def _pushing_client() -> redis.Redis:
    return client()


def client() -> redis.Redis:
    """With deadlines: a Redis that stands still is a Redis that is away."""
    return redis.Redis.from_url(settings.REDIS_URL, socket_connect_timeout=ANSWER_S, socket_timeout=ANSWER_S)


class Listener:
    """Listens at some doors in a thread of its own. `heard` gets the hosts of each word and must not take long."""

    def __init__(self, doors: Sequence[str], heard: Callable[[list[int]], None]) -> None:
        self._keys = [_key(door) for door in doors]
        self._heard = heard
        self._stopping = threading.Event()
        self._away = False
        self._thread = threading.Thread(target=self._listen, name="bell", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """No waiting: a word that comes now is lost, as any may be."""
        self._stopping.set()

    def _listen(self) -> None:
        with client() as line:
            while not self._stopping.is_set():
                try:
                    word = line.blpop(self._keys, timeout=LISTEN_S)
                    self._away = False
                except REDIS_UNAVAILABLE as problem:
                    if not self._away:
                        log.warning("Redis is away (%s); hints come late.", type(problem).__name__)
                    self._away = True
                    self._stopping.wait(REST_S)
                    continue
                if word is not None and not self._stopping.is_set():
                    self._hear(word[1])

    def _hear(self, word: bytes) -> None:
        try:
            self._heard([int(host) for host in json.loads(word)])
        except Exception:  # whatever it was, it was only a hint
            log.exception("A hint could not be followed.")
