"""Ends this process when a later version of Trainyard has migrated the database.

Several machines are stopped for an upgrade. If one of them was forgotten, its processes know neither the new columns
nor the rules that the later version keeps. So each process looks every second which migrations the database has been
through, and ends at once when there is one that it does not know. `trainyard up` does not start again then.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.db.models import Max

from agents.infra.database_errors import DATABASE_UNAVAILABLE
from console.runtime import database_setup
from console.runtime.database_threads import return_connections

log = logging.getLogger(__name__)

EVERY_S = 1.0
STOP_S = 10.0
EXIT_CODE = 3


def end_process(why: str) -> None:
    """End without any further work: it could write to a database that this version does not understand."""
    log.error("%s", why)
    logging.shutdown()
    os._exit(EXIT_CODE)


class SchemaWatch:
    """Calls `on_later(why)` once when the database has been migrated by a later version."""

    def __init__(self, on_later: Callable[[str], None] = end_process) -> None:
        self._on_later = on_later
        self._newest: int | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="schema", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(STOP_S)

    def look(self) -> str:
        """Why this process must end; empty if it may go on. One small query while nothing has changed."""
        newest = MigrationRecorder(connection).migration_qs.aggregate(newest=Max("id"))["newest"]
        if newest == self._newest:
            return ""
        unknown = database_setup.unknown_migrations()
        if not unknown:
            self._newest = newest
            return ""
        return (
            f"A later version of Trainyard has migrated the database (it has {unknown[0]}). This version ends."
            " Jobs that run on hosts go on. Install the later version here too, and start it."
        )

    def _run(self) -> None:
        while not self._stopping.is_set():
            why = self._look_quietly()
            # Back to the pool: each process would hold one more while it waits.
            return_connections()
            if why:
                self._on_later(why)
                break
            self._stopping.wait(EVERY_S)
        connection.close()

    def _look_quietly(self) -> str:
        try:
            return self.look()
        except DATABASE_UNAVAILABLE as problem:
            log.debug("The migrations could not be compared: %s", problem)
        except Exception:
            log.exception("The migrations could not be compared")
        return ""
