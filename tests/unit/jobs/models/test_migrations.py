"""A new database comes by one chain of migrations for each app, and one of another version is refused."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from console.runtime import database_setup
from tests.harness import new_database
from tests.harness.races import race
from tests.harness.services import Postgres

ROOT = Path(__file__).resolve().parents[4]
OURS = ("agents", "console", "jobs")
MIGRATE = """
import json
import django
django.setup()
from django.db import connection
from console.runtime import database_setup

assert database_setup.unapplied()
database_setup.prepare()
assert not database_setup.unapplied()
database_setup.prepare()


def ask(sql):
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return [[str(value) for value in row] for row in cursor.fetchall()]


storage = []
if connection.vendor == "postgresql":
    storage = ask("SELECT attstorage FROM pg_attribute WHERE attrelid = 'jobs_logpiece'::regclass AND attname = 'data'")
guards = "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal"
if connection.vendor == "sqlite":
    guards = "SELECT name FROM sqlite_master WHERE type = 'trigger'"
print(json.dumps({
    "storage of log bytes": storage,
    "guards": sorted(name for [name] in ask(guards)),
    "migrations": ask("SELECT app, name FROM django_migrations ORDER BY app, name"),
    "first rows": [ask("SELECT name, title FROM jobs_project"), ask("SELECT name, title FROM agents_location")],
}))
"""

# A machine whose own clock is wrong makes a new database. Prints how wrong the date of its first row is. On the second
# call the row is made by `prepare` itself.
WRONG_S = 7200.0
DATE = f"""
import time
import django
django.setup()
from agents.infra import clock
from console.runtime import database_setup
from jobs.models import Project
true = time.time
clock.date_clock = lambda: true() + {WRONG_S}


def first_row():
    clock._offset.seconds = clock.date_clock() - clock.elapsed()
    database_setup.prepare()
    return Project.objects.get(name="default").created_at.timestamp() - true()


print(first_row())
Project.objects.all().delete()
print(first_row())
"""


def environment(data, url=""):
    ours = ("TRAINYARD_", "DATABASE_URL", "REDIS_URL")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    own = {"DJANGO_SETTINGS_MODULE": "console.settings", "TRAINYARD_DATA": str(data)}
    services = {"DATABASE_URL": url, "REDIS_URL": "redis://127.0.0.1:1/0"} if url else {}
    return {**clean, **own, **services}


def migrated(data, url=""):
    """What a database is like that was made just now."""
    done = subprocess.run(
        [sys.executable, "-c", MIGRATE],
        cwd=ROOT,
        env=environment(data, url),
        text=True,
        capture_output=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def url():
    postgres = Postgres().start()
    yield postgres.create_database("one")
    postgres.close()


def is_as_it_should_be(found):
    for ours in OURS:
        numbers = [int(name[:4]) for app, name in found["migrations"] if app == ours]
        assert numbers == list(range(1, len(numbers) + 1)), f"the migrations of {ours} are no chain"
    guarded = {name.removesuffix("_final") for name in found["guards"] if name.endswith("_final")}
    assert "jobs_job" in guarded and len(found["guards"]) >= 3
    assert found["first rows"] == [[["default", "Default"]]] * 2


@pytest.mark.slow
def test_a_new_database_has_tables_guards_and_first_rows_on_sqlite(tmp_path):
    is_as_it_should_be(migrated(tmp_path))


@pytest.mark.slow
def test_a_new_database_has_tables_guards_and_first_rows_on_postgresql(tmp_path, url):
    found = migrated(tmp_path, url)
    is_as_it_should_be(found)
    # EXTERNAL: log bytes come compressed, so PostgreSQL does not try to compress them again.
    assert found["storage of log bytes"] == [["e"]]


@pytest.mark.slow
def test_the_first_rows_are_dated_by_the_database_and_not_by_a_machine_whose_clock_is_wrong(tmp_path, url):
    done = subprocess.run(
        [sys.executable, "-c", DATE],
        cwd=ROOT,
        env=environment(tmp_path, url),
        text=True,
        capture_output=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    wrong_s = [float(line) for line in done.stdout.split()]
    assert len(wrong_s) == 2 and all(abs(each) < abs(WRONG_S) / 2 for each in wrong_s), wrong_s


@pytest.mark.slow
def test_a_database_of_another_version_is_refused_with_the_cure_and_left_alone(tmp_path):
    """Databases from before 0.1 had been through migrations that are not here any more."""
    tmp_path.chmod(0o700)
    database = tmp_path / "trainyard.sqlite3"
    new_database.put_sqlite(database)
    subprocess.run(
        [sys.executable, "-c", "import sqlite3, sys; base = sqlite3.connect(sys.argv[1]);"
         " base.execute(\"INSERT INTO django_migrations (app, name, applied)"
         " VALUES ('jobs', '0002_guards', '2026-01-01')\"); base.commit()", str(database)],
        check=True,
    )  # fmt: skip
    before = database.read_bytes()
    for command in (("host", "list"), ("up", "--only", "worker")):
        done = subprocess.run(
            [sys.executable, "-m", "console.cli", *command],
            cwd=ROOT,
            env=environment(tmp_path),
            text=True,
            capture_output=True,
            timeout=120,
        )
        assert done.returncode == 1 and "Traceback" not in done.stderr
        assert (
            "jobs.0002_guards" in done.stderr
            and "empty data directory (--data, TRAINYARD_DATA)" in done.stderr
        )
    assert database.read_bytes() == before


@pytest.mark.django_db(transaction=True)
def test_processes_migrate_one_after_the_other(settings, tmp_path):
    """On PostgreSQL the second is on another machine: with a data directory of its own, and its own lock file."""
    told = []

    def migrate(machine):
        def acts():
            if connection.vendor == "postgresql":
                (tmp_path / machine).mkdir()
                settings.TRAINYARD = dataclasses.replace(settings.TRAINYARD, data=tmp_path / machine)
            with database_setup.migration_lock():
                told.append(f"{machine} begins")
                MigrationRecorder(connection).applied_migrations()
                told.append(f"{machine} ends")

        return acts

    assert race(migrate("a"), migrate("b"), before="SELECT django_migrations") == (None, None)
    assert told == ["a begins", "a ends", "b begins", "b ends"]
