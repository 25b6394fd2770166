"""Watches over a running Trainyard, in a process of its own because it needs threads and connections.

It says when all is ready, finds workers that run but do not take messages, and notices when a later version has
migrated the database. It acts on nothing itself: it tells the supervisor, by a line of JSON in a pipe.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, build_opener

import redis
from celery.exceptions import CeleryError
from django.conf import settings
from django.utils import timezone
from kombu.exceptions import KombuError, OperationalError

from agents.clock_keeper import ClockKeeper
from agents.infra import clock
from console.auth import setup
from console.runtime.processes.supervisor import Supervisor
from console.runtime.schema_watch import SchemaWatch
from console.runtime.tasks import echo, echo_key

ECHO_EVERY_S = 10.0
# Much longer than a busy machine needs, much shorter than a person would wait.
UNRESPONSIVE_AFTER_S = 90.0

Tell = Callable[[dict[str, str]], None]


class Messages:
    """The pipe from the watchdog to the supervisor. A watchdog that is started again goes on with the same pipe."""

    def __init__(self) -> None:
        self.outlet, self.inlet = os.pipe()
        os.set_blocking(self.outlet, False)
        self.begun = b""

    def tell(self, message: dict[str, str]) -> None:
        # Shorter than PIPE_BUF, and so never mixed with another.
        os.write(self.inlet, json.dumps(message).encode() + b"\n")

    def take(self) -> list[dict[str, str]]:
        try:
            *lines, self.begun = (self.begun + os.read(self.outlet, 64 * 1024)).split(b"\n")
        except BlockingIOError:
            return []
        return [json.loads(line) for line in lines]


@dataclass
class Director:
    """Does in the supervisor's process what the watchdog tells."""

    supervisor: Supervisor
    messages: Messages
    ready: bool = False
    stopped_because: str = ""

    def look(self) -> None:
        for message in self.messages.take():
            self.act(message)

    def act(self, message: dict[str, str]) -> None:
        if "restart" in message:
            self.supervisor.restart(message["restart"], message["why"])
        elif "stop" in message:
            self.stopped_because = message["stop"]
            self.supervisor.ask_to_stop()
        else:
            self.ready = True
            self.supervisor.say(message["ready"])


class EchoWatch:
    """Sends each worker an echo task through its queue. A restart harms no job, because replicas do not notice it."""

    def __init__(self, queues: dict[str, str], tell: Tell) -> None:
        self.queues = queues
        self.tell = tell
        self.unanswered_since: dict[str, float] = {}

    def run(self) -> None:
        while True:
            time.sleep(ECHO_EVERY_S)
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
            self.tell({"restart": name, "why": f"has not answered through its queue for {now - since:.0f} s"})
            return
        self.send(name, queue, now)

    def last_echo(self, name: str) -> float:
        """The time at which the last echo that came back was sent."""
        with redis.from_url(settings.REDIS_URL, socket_timeout=5) as client:
            return float(client.get(echo_key(name)) or 0)

    def send(self, name: str, queue: str, now: float) -> None:
        echo.apply_async((name, now), queue=queue, expires=UNRESPONSIVE_AFTER_S)


def main(tell: Tell, queues: dict[str, str], near: str, url: str, announced: bool) -> None:
    """`near`: where the web process is reached from here; `url`: where a browser reaches it; both empty without one."""
    ClockKeeper().start()
    SchemaWatch(lambda why: tell({"stop": why})).start()
    if not announced:
        threading.Thread(target=announce, args=(tell, near, url), daemon=True).start()
    EchoWatch(queues, tell).run()


def announce(tell: Tell, near: str, url: str) -> None:
    """Say "ready" as soon as the web process reports that the database and the broker answer."""
    if not near:
        tell({"ready": "Trainyard's processes are started (no web among them)."})
        return
    while not healthy(near):
        time.sleep(0.1)
    link = f"{url}/setup/{setup.renew(timezone.now())}" if setup.needed() else ""
    # In one piece: a script that waits for the first line then also finds the second one.
    tell({"ready": f"Trainyard is ready at {url}" + (f"\nSet up your account: {link}" if link else "")})


def healthy(url: str) -> bool:
    try:
        with build_opener(ProxyHandler({})).open(f"{url}/healthz", timeout=5) as answer:
            return int(answer.status) == 200
    except (HTTPError, URLError, OSError):
        return False
