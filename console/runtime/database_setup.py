"""Migrates the database to this version and makes the rows that every deployment has from the start."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.utils import timezone

from agents import clock_keeper
from agents.models import Location
from console.auth.accounts import default_project

# Any number that only we use. The lock lets one process migrate at a time over all machines of a deployment.
ADVISORY_LOCK = 0x7472_7964


# The apps whose tables are ours.
OURS = frozenset({"agents", "console", "jobs"})


class ForeignDatabase(ImproperlyConfigured):
    """The database was made by another version of Trainyard, and this one cannot work on it."""


def prepare() -> None:
    """Migrate if needed. Several processes may call this at once; it is quick when there is nothing to do."""
    refuse_foreign()
    if unapplied():
        with migration_lock():
            clock_keeper.follow_before_migrating()
            call_command("migrate", verbosity=0, interactive=False)
    # Only now the time is Trainyard's for sure, so no caller's time is taken.
    clock_keeper.ClockKeeper().look_quietly()
    # Not in a transaction: on SQLite a transaction would wait for the writer, and usually nothing is to be written.
    default_project(timezone.now())
    Location.objects.get_or_create(name="default", defaults={"title": "Default"})


def unknown_migrations() -> list[str]:
    """The migrations that the database has been through and this version does not have."""
    loader = MigrationLoader(connection, load=False)
    loader.load_disk()
    applied = MigrationRecorder(connection).applied_migrations()
    return [".".join(key) for key in sorted(applied) if key[0] in OURS and key not in loader.disk_migrations]


def refuse_foreign() -> None:
    """Raise ForeignDatabase if the database has been through migrations that this version does not have."""
    if unknown := unknown_migrations():
        raise ForeignDatabase(
            f"The database of {settings.TRAINYARD.data} was made by another version of Trainyard (it has"
            f" {unknown[0]}): by a later one, or by one from before 0.1, whose databases are not upgraded."
            " Nothing was changed. Go back to the version that made it, or start with an empty data directory"
            " (--data, TRAINYARD_DATA) and, with PostgreSQL, an empty database (DATABASE_URL)."
        )


def unapplied() -> bool:
    executor = MigrationExecutor(connection)
    return bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))


@contextmanager
def migration_lock() -> Iterator[None]:
    with (settings.TRAINYARD.data / "migrate.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if connection.vendor != "postgresql":
            yield
            return
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(%s)", [ADVISORY_LOCK])
            try:
                yield
            finally:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [ADVISORY_LOCK])
