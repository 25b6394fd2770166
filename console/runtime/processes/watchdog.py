"""Finds workers that run but do not take messages, and restarts them."""

from __future__ import annotations

import threading

import redis
from celery.exceptions import CeleryError
from django.conf import settings
from kombu.exceptions import KombuError, OperationalError

from agents.infra import clock
from console.runtime.processes.supervisor import Supervisor
from console.runtime.tasks import echo, echo_key

ECHO_EVERY_S = 10.0
# Much longer than a busy machine needs, much shorter than a person would wait.
UNRESPONSIVE_AFTER_S = 90.0


class Watchdog(threading.Thread):
    """Sends each worker an echo task through its queue. A restart harms no job, because replicas do not notice it."""

    def __init__(self, supervisor: Supervisor, names: list[str]) -> None:
        super().__init__(name="watchdog", daemon=True)
        self.supervisor = supervisor
        self.queues = {name: queue_of(supervisor, name) for name in names}
        self.unanswered_since: dict[str, float] = {}

    def run(self) -> None:
        while not self.supervisor.stopping.wait(ECHO_EVERY_S):
            for name, queue in self.queues.items():
                try:
                    self.check(name, queue, clock.now().timestamp())
                except (redis.RedisError, KombuError, OperationalError, CeleryError, OSError):
                    # Without a broker no worker can answer, so this does not count against the worker.
                    self.unanswered_since.clear()

    def check(self, name: str, queue: str, now: float) -> None:
        """Send an echo each time: one echo may be lost together with its broker, which is not the worker's fault."""
        since = self.unanswered_since.setdefault(name, now)
        if self.last_echo(name) >= since:
            self.unanswered_since[name] = now
        elif now - since > UNRESPONSIVE_AFTER_S:
            del self.unanswered_since[name]
            self.supervisor.restart(name, f"has not answered through its queue for {now - since:.0f} s")
            return
        self.send(name, queue, now)

    def last_echo(self, name: str) -> float:
        """The time at which the last echo that came back was sent."""
        with redis.from_url(settings.REDIS_URL, socket_timeout=5) as client:
            return float(client.get(echo_key(name)) or 0)

    def send(self, name: str, queue: str, now: float) -> None:
        echo.apply_async((name, now), queue=queue, expires=UNRESPONSIVE_AFTER_S)


def queue_of(supervisor: Supervisor, name: str) -> str:
    """The process's own queue, or the shared queue if it has none of its own."""
    argv = supervisor.children[name].process.argv
    return argv[argv.index("-Q") + 1].split(",")[-1]
