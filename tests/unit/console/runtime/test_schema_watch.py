"""A process of an older version does not go on when a later one has migrated the database."""

from __future__ import annotations

import sqlite3
import threading

import pytest
from django.db import OperationalError
from django.db.migrations.recorder import MigrationRecorder
from django.utils import timezone

from console.runtime import database_setup
from console.runtime.schema_watch import SchemaWatch
from tests.harness.product import Product
from tests.harness.wait_and_processes import wait_for

LATER = "9999_of_a_later_version"


@pytest.mark.django_db
def test_a_migration_of_ours_that_is_not_known_ends_the_process_and_others_do_not():
    watch = SchemaWatch()
    assert watch.look() == ""
    MigrationRecorder.Migration.objects.create(app="auth", name=LATER, applied=timezone.now())
    assert watch.look() == "", "an app of Django's own"
    MigrationRecorder.Migration.objects.create(app="jobs", name=LATER, applied=timezone.now())
    assert f"jobs.{LATER}" in watch.look() and "This version ends" in watch.look()


@pytest.mark.django_db
def test_while_nothing_changes_a_look_is_one_query(django_assert_num_queries):
    watch = SchemaWatch()
    watch.look()
    with django_assert_num_queries(1):
        watch.look()


def test_a_database_that_does_not_answer_ends_nothing(monkeypatch):
    looks, enough, ended = [], threading.Event(), []

    def unknown():
        looks.append(1)
        if len(looks) > 2:
            enough.set()
        raise OperationalError("away")

    monkeypatch.setattr(SchemaWatch, "look", lambda self: unknown())
    monkeypatch.setattr("console.runtime.schema_watch.EVERY_S", 0.01)
    watch = SchemaWatch(ended.append)
    watch.start()
    assert enough.wait(30)
    watch.stop()
    assert ended == []


def test_a_product_whose_database_was_migrated_by_a_later_version_stops_and_says_why():
    with Product("embedded") as product:
        old = product.processes.all()
        with sqlite3.connect(product.data / "trainyard.sqlite3", timeout=30) as database:
            database.execute(
                "INSERT INTO django_migrations (app, name, applied) VALUES ('jobs', ?, '2030-01-01')", [LATER]
            )
        wait_for(lambda: product.up.poll() is not None, "trainyard up to end", timeout=40, dump=product.tail)
        said = product.output.read_text()
        assert product.up.returncode == 1
        assert f"it has jobs.{LATER}" in said and "Install the later version here too" in said
        assert len(old) >= 5 and not set(old) & set(product.processes.all())
        again = product.command("up", check=False)
        assert again.returncode == 1 and "another version of Trainyard" in again.stderr


@pytest.mark.slow
def test_each_process_ends_by_itself():
    """Also where the `up` that started it stands still."""
    with Product("embedded") as product:
        product.processes.pause_one(product.up.pid)
        try:
            pids = {role: product.processes.of(role) for role in ("web", "worker", "dispatcher")}
            with sqlite3.connect(product.data / "trainyard.sqlite3", timeout=30) as database:
                database.execute(
                    "INSERT INTO django_migrations (app, name, applied) VALUES ('agents', ?, '2030-01-01')",
                    [LATER],
                )
            for role, [pid] in pids.items():
                wait_for(lambda pid=pid: is_over(pid), f"{role} to end", timeout=20)
        finally:
            product.processes.resume(product.up.pid)


def is_over(pid):
    """It ended; nobody has reaped it while `up` stands still."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_every_migration_on_disk_is_known():
    assert {"agents", "console", "jobs"} == database_setup.OURS
