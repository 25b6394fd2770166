"""The settings of database, broker and channel layer follow from the environment."""

from __future__ import annotations

import threading

import pytest
from django.db import connection, transaction
from kombu import Connection, Queue
from kombu.exceptions import ContentDisallowed

from agents.links.host_thread import FleetSettings
from console.environment import BadSetting, Environment
from console.runtime import backend_settings, database_threads
from console.runtime.celery_app import app
from console.runtime.processes import children
from console.runtime.requests import asgi_handler
from jobs.maintenance import checks
from jobs.models import Tick
from jobs.notifications import sender


def test_the_embedded_shape_needs_only_the_data_directory(tmp_path):
    here = Environment(data=tmp_path)
    database = backend_settings.database(here)
    assert database["ENGINE"].endswith("sqlite3")
    assert database["NAME"] == str(tmp_path / "trainyard.sqlite3")
    assert database["OPTIONS"]["transaction_mode"] == "IMMEDIATE"
    assert "synchronous=FULL" in database["OPTIONS"]["init_command"]
    assert backend_settings.redis_url(here) == f"unix://{tmp_path}/broker/redis.sock?db=0"
    assert backend_settings.broker_url(here) == f"redis+socket://{tmp_path}/broker/redis.sock?virtual_host=0"


def test_the_addresses_of_servers_change_only_database_broker_and_channel_layer():
    far = Environment(database_url="postgresql://u:p%40@db:5433/yard", redis_url="rediss://:s@r:6380/2")
    database = backend_settings.database(far)
    assert (database["ENGINE"], database["HOST"], database["PORT"]) == (
        "django.db.backends.postgresql",
        "db",
        5433,
    )
    assert (database["NAME"], database["PASSWORD"]) == ("yard", "p@")
    assert "-c jit=off" in database["OPTIONS"]["options"], "no statement of ours is worth a compiler's time"
    assert database["CONN_MAX_AGE"] == 0 and database["OPTIONS"]["pool"]["max_size"] > 1
    assert backend_settings.broker_url(far) == backend_settings.redis_url(far) == "rediss://:s@r:6380/2"
    rabbit = Environment(redis_url="redis://r", broker_url="amqp://u:p@m//")
    assert backend_settings.broker_url(rabbit) == "amqp://u:p@m//"
    assert backend_settings.celery_settings(rabbit)["broker_transport_options"] == {}


def test_every_thread_that_uses_the_database_finds_a_connection():
    """Permanent threads, by process. Other threads return their connections before they end (database_threads.py)."""
    most = backend_settings.database(Environment(database_url="postgresql://db/yard"))["OPTIONS"]["pool"][
        "max_size"
    ]
    beside = 2  # the worker has the sweep timer; the dispatcher has the lease keeper and the decider
    of_sockets = sum(
        (
            database_threads.THREADS,
            database_threads.CHECK_THREADS,
            database_threads.RENDER_THREADS,
            database_threads.DOWNLOAD_THREADS,
        )
    )
    assert asgi_handler.THREADS + of_sockets <= most
    assert children.WORKER_THREADS + checks.THREADS + sender.THREADS + beside <= most
    assert children.DISPATCHER_THREADS + FleetSettings("x").worker_threads + beside <= most


def test_an_address_without_a_database_is_refused():
    with pytest.raises(BadSetting, match="add the name of the database"):
        backend_settings.database(Environment(database_url="postgresql://u:secret@db:5432/"))


def test_a_deep_data_directory_gets_a_socket_that_fits(tmp_path):
    deep = tmp_path / ("x" * 60) / ("y" * 60)
    assert len(str(backend_settings.broker_socket(Environment(data=deep)))) <= 100
    assert backend_settings.broker_socket(Environment(data=deep)) != backend_settings.broker_socket(
        Environment(data=deep / "z")
    )


def test_the_channel_layer_survives_idle_sockets_and_many_closing_at_once(tmp_path):
    """With redis-py's defaults (5 s read timeout, 100 connections) idle sockets and many closing sockets broke."""
    (host,) = backend_settings.channel_layer(Environment(data=tmp_path))["CONFIG"]["hosts"]
    assert host["socket_timeout"] is None
    assert host["max_connections"] >= 2000


def test_a_pickle_in_the_broker_is_never_opened():
    """Anybody who can write to the broker could run code with a pickle."""
    with Connection("memory://") as link:
        queue = Queue("default")(link)
        link.Producer().publish({"a": 1}, serializer="pickle", routing_key="default", declare=[queue])
        consumer = app.amqp.TaskConsumer(link.channel(), queues=[queue], callbacks=[lambda *_: None])
        with consumer, pytest.raises(ContentDisallowed):
            link.drain_events(timeout=5)


@pytest.mark.django_db(transaction=True)
def test_writers_of_sqlite_wait_for_each_other_instead_of_failing():
    """By default, a transaction that reads first and then writes makes SQLite fail with "database is locked"."""
    before = Tick.objects.create(name="contended", at="2026-01-01T00:00:00Z").pk
    problems: list[Exception] = []

    def work(worker: int) -> None:
        try:
            for number in range(10):
                with transaction.atomic():
                    row = Tick.objects.get(name="contended")
                    Tick.objects.create(name=f"{worker}-{number}", at=row.at)
        except Exception as problem:
            problems.append(problem)
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert problems == []
    assert Tick.objects.filter(pk__gt=before).count() == 40
