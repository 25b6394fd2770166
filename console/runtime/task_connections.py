"""The database connections of Celery's tasks: after a task PostgreSQL's go back to the pool, SQLite's stays open.

Celery itself closes all connections before and after each task, so that SQLite's file would be opened for each sweep.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from celery.fixups.django import DjangoFixup, DjangoWorkerFixup  # type: ignore[attr-defined]

from console.runtime.database_threads import return_connections


class WorkerFixup(DjangoWorkerFixup):  # type: ignore[misc]
    def _close_database(self) -> None:
        return_connections()


class Fixup(DjangoFixup):
    """Celery's own support of Django, but for the connections."""

    @cached_property
    def worker_fixup(self) -> WorkerFixup:
        return WorkerFixup(self.app)


def fixup(app: Any) -> Fixup:
    made = Fixup(app)
    made.install()
    return made
