"""The dispatcher: a Celery worker that keeps a link to each host whose lease it holds. Its tasks are hints to links."""

from __future__ import annotations

import os
import re
import socket
import sys
from contextlib import suppress
from typing import Any

from celery import bootsteps
from django.conf import settings
from django.db import connection

import console.runtime.celery_app
from agents.clock_keeper import ClockKeeper
from agents.infra.database_errors import DATABASE_UNAVAILABLE
from agents.infra.sql import prepare_all
from agents.links.fleet import Fleet, FleetSettings, wake_hosts, watch_hosts
from agents.ssh import keys
from console.runtime.schema_watch import SchemaWatch
from jobs.host_sync.control_plane import JobsControlPlane
from jobs.host_sync.database_connection import database_connection
from jobs.wake.hints import DISPATCH
from jobs.wake.wakeup_list import Listener

__all__ = ["KeepLinks", "app"]

app = console.runtime.celery_app.app

# The threads of the work queue. SQLite has one writer, so more threads would only wait for its lock, and waiting for it
# is expensive because SQLite polls.
WORKER_THREADS = {"sqlite": 2, "postgresql": 6}
# The dispatcher has many threads that each do a little between two waits. With Python's default of 5 ms, a thread whose
# answer has arrived would wait for all the others.
SWITCH_INTERVAL_S = 0.0005


def own_name() -> str:
    """The dispatcher's name: from `trainyard up`, or made here when the dispatcher is started by hand."""
    machine = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:40]
    return str(settings.TRAINYARD.dispatcher or f"{machine}-{os.getpid()}")


def fleet_settings() -> FleetSettings:
    known = settings.TRAINYARD
    return FleetSettings(
        deployment=settings.DEPLOYMENT,
        lease_s=known.lease_s,
        tick_s=known.tick_s,
        dead_s=known.link_dead_s,
        worker_threads=WORKER_THREADS.get(connection.vendor, 4),
    )


class KeepLinks(bootsteps.StartStopStep):
    """Starts the links after Celery's pool, stops them before it.

    Hints come by two queues: a shared one and its own.
    """

    requires = ("celery.worker.components:Pool",)

    def __init__(self, parent: Any, **options: Any) -> None:
        super().__init__(parent, **options)
        self.own = own_name()
        self.fleet: Fleet | None = None
        self.control_plane: JobsControlPlane | None = None
        self.listener: Listener | None = None
        self.clock, self.schema = ClockKeeper(), SchemaWatch()
        for queue in (DISPATCH, f"{DISPATCH}.{self.own}"):
            if queue not in parent.app.amqp.queues.consume_from:
                parent.app.amqp.queues.select_add(queue)

    def start(self, parent: Any) -> None:
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        # Before the first lease is taken.
        self.clock.start_or_end()
        self.schema.start()
        with database_connection(), suppress(*DATABASE_UNAVAILABLE):
            prepare_all()  # otherwise the first submitted job waits for this
        self.control_plane = JobsControlPlane(wake_hosts)
        self.fleet = Fleet(self.control_plane, self.own, fleet_settings(), keys.private_key)
        self.fleet.start()
        names = [f"{DISPATCH}.{self.own}", DISPATCH]
        self.listener = Listener(names, self.control_plane.look, watch_hosts)
        self.listener.start()

    def stop(self, parent: Any) -> None:
        if self.listener is not None:
            self.listener.stop()
        fleet, self.fleet = self.fleet, None
        if fleet is not None:
            fleet.stop()
        if self.control_plane is not None:
            self.control_plane.close()
        self.clock.stop()
        self.schema.stop()

    def terminate(self, parent: Any) -> None:
        self.stop(parent)


app.steps["worker"].add(KeepLinks)
