"""Finds workers that live but do not hear, and has them restarted."""

from __future__ import annotations

import threading
import time

import redis
from celery.exceptions import CeleryError
from django.conf import settings
from kombu.exceptions import KombuError, OperationalError

from console.runtime.supervisor import Supervisor
from console.runtime.tasks import echo, echo_key

ECHO_EVERY_S = 10.0
# Far above what a busy machine needs, far below what a person would put up with.
UNRESPONSIVE_AFTER_S = 90.0


class Watchdog(threading.Thread):
    """Sends each worker an echo through its own queue. A restart harms no job: replicas do not notice."""

    def __init__(self, supervisor: Supervisor, names: list[str]) -> None:
        super().__init__(name="watchdog", daemon=True)
        self.supervisor = supervisor
        self.queues = {name: queue_of(supervisor, name) for name in names}
        self.unanswered_since: dict[str, float] = {}

    def run(self) -> None:
        while not self.supervisor.stopping.wait(ECHO_EVERY_S):
            for name, queue in self.queues.items():
                try:
                    self.check(name, queue, time.time())
                except (redis.RedisError, KombuError, OperationalError, CeleryError, OSError):
                    # Without a broker nobody can answer; that is not the worker's fault.
                    self.unanswered_since.clear()

    def check(self, name: str, queue: str, now: float) -> None:
        """Asks each time anew: a question may be lost with the broker that held it, and that makes nobody deaf."""
        since = self.unanswered_since.setdefault(name, now)
        if self.last_echo(name) >= since:
            self.unanswered_since[name] = now
        elif now - since > UNRESPONSIVE_AFTER_S:
            del self.unanswered_since[name]
            self.supervisor.restart(name, f"has not answered through its queue for {now - since:.0f} s")
            return
        self.send(name, queue, now)

    def last_echo(self, name: str) -> float:
        """When the last echo that came back was sent."""
        with redis.from_url(settings.REDIS_URL, socket_timeout=5) as client:
            return float(client.get(echo_key(name)) or 0)

    def send(self, name: str, queue: str, now: float) -> None:
        echo.apply_async((name, now), queue=queue, expires=UNRESPONSIVE_AFTER_S)


def queue_of(supervisor: Supervisor, name: str) -> str:
    """The queue that only this process consumes, or the one it shares."""
    argv = supervisor.children[name].process.argv
    return argv[argv.index("-Q") + 1].split(",")[-1]
