"""A new database begins with one step for each app; one of before has come by all of them. Both end as the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.harness.services import Postgres

MIGRATE = """
import json, sys
import django
django.setup()
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.utils import timezone
from console.runtime import database_setup

if sys.argv[1] == "by steps":
    executor = MigrationExecutor(connection)
    executor.loader = MigrationLoader(connection, replace_migrations=False)
    graph = executor.loader.graph
    executor.migrate([node for node in graph.leaf_nodes() if not graph.nodes[node].replaces])
    by_steps = MigrationLoader(connection).applied_migrations
    assert ("jobs", "0002_guards") in by_steps
assert database_setup.unapplied() is (sys.argv[1] != "by steps")
database_setup.prepare(timezone.now())
assert not database_setup.unapplied()


def ask(sql):
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return [[str(value) for value in row] for row in cursor.fetchall()]


def elements(sql):
    # What stands between the outermost brackets of a CREATE TABLE, cut at its commas: columns in any order.
    body, found, depth = sql[sql.index("(") + 1 : sql.rindex(")")], [""], 0
    for letter in body:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return sorted(element.strip() for element in found)


if connection.vendor == "sqlite":
    rows = ask("SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'")
    shape = [[kind, name, elements(sql) if kind == "table" else sql] for kind, name, sql in rows]
else:
    shape = [
        *ask("SELECT table_name, column_name, data_type, character_maximum_length, is_nullable, column_default,"
             " is_identity FROM information_schema.columns WHERE table_schema = 'public'"),
        *ask("SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'"),
        *ask("SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint"
             " WHERE connamespace = 'public'::regnamespace"),
        *ask("SELECT tgrelid::regclass::text, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal"),
    ]
first = [ask("SELECT name, title FROM jobs_project"), ask("SELECT name, title FROM agents_location")]
print(json.dumps({"shape": sorted(shape), "first rows": first}))
"""


def migrated(way, data, url=""):
    """What a database is like that was made in this way."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TRAINYARD_")}
    environment = {**clean, "DJANGO_SETTINGS_MODULE": "console.settings", "TRAINYARD_DATA": str(data)}
    if url:
        environment.update(DATABASE_URL=url, REDIS_URL="redis://127.0.0.1:1/0")
    words = [sys.executable, "-c", MIGRATE, way]
    done = subprocess.run(words, env=environment, text=True, capture_output=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def two_urls():
    postgres = Postgres().start()
    yield [postgres.create_database(name) for name in ("one", "other")]
    postgres.close()


def test_a_new_database_is_as_one_that_came_by_every_step(tmp_path, two_urls):
    """Tables, columns, indexes, constraints, guards and first rows, on both databases."""
    ways = ("by steps", "at once")
    places = [(way, tmp_path / str(number)) for number, way in enumerate(ways * 2)]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(migrated, *zip(*places, strict=True), ["", "", *two_urls]))
    for by_steps, at_once in (found[:2], found[2:]):
        assert by_steps == at_once
        guards = [line for line in by_steps["shape"] if "jobs_job_final" in str(line)]
        assert guards and by_steps["first rows"] == [[["default", "Default"]]] * 2
