"""The worker: Celery's worker with a timer that runs the sweep when no message asks for it."""

from __future__ import annotations

import logging
import threading
from typing import Any

from celery import bootsteps
from django.conf import settings

import console.runtime.celery_app
from agents.clock_keeper import ClockKeeper
from agents.infra.database_errors import DATABASE_UNAVAILABLE
from console.runtime.database_threads import return_connections
from console.runtime.schema_watch import SchemaWatch

__all__ = ["SweepTimer", "app"]

log = logging.getLogger(__name__)
app = console.runtime.celery_app.app

# Beat sends a message every tick. The timer is for the time in which beat or the broker is unavailable.
TICKS_BETWEEN = 5


class SweepTimer(bootsteps.StartStopStep):
    """Calls the sweep in a thread of its own. The sweep itself makes sure that only one worker runs it at a time."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, parent: Any, **options: Any) -> None:
        super().__init__(parent, **options)
        self.stopping = threading.Event()
        self.clock, self.schema = ClockKeeper(), SchemaWatch()
        self.thread = threading.Thread(target=self.run, name="sweep-timer", daemon=True)

    def start(self, parent: Any) -> None:
        self.clock.start_or_end()
        self.schema.start()
        self.thread.start()

    def stop(self, parent: Any) -> None:
        self.stopping.set()
        self.clock.stop()
        self.schema.stop()

    def terminate(self, parent: Any) -> None:
        self.stopping.set()

    def run(self) -> None:
        while not self.stopping.wait(settings.TRAINYARD.tick_s * TICKS_BETWEEN):
            try:
                app.tasks["jobs.tasks.sweep"]()
            except DATABASE_UNAVAILABLE as problem:
                log.warning("The database did not answer the sweep: %s", problem)
            except Exception:  # a failed sweep is tried again; the timer must go on
                log.exception("the sweep failed")
            finally:
                return_connections()


app.steps["worker"].add(SweepTimer)
