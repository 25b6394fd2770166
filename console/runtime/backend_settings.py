"""Translates the environment into the settings of the database (Django), the broker (Celery) and the channel layer."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import dj_database_url

from agents.infra import database_pool, time_loader
from console.environment import BadSetting, Environment

# Celery tasks are short (the work of one hint). When a task is not acknowledged for this long, its worker has died.
VISIBILITY_S = 180

# How often a connection runs a statement of the driver's own before it is prepared. Those of agents/infra/sql.py are
# prepared at once.
PREPARED_AFTER = 5

SQLITE_OPTIONS = {
    # Writers queue at BEGIN. Otherwise a reader that becomes a writer fails with "database is locked".
    "transaction_mode": "IMMEDIATE",
    "timeout": 20,
    # FULL: an accepted job must survive a power cut. WAL: readers never wait for the writer.
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA cache_size=-16000;",
}


def database(environment: Environment) -> dict[str, Any]:
    url = environment.database_url or f"sqlite:///{environment.data / 'trainyard.sqlite3'}"
    try:
        chosen: dict[str, Any] = {**dj_database_url.parse(url)}
    except ValueError as problem:
        raise BadSetting("DATABASE_URL", f"{urlsplit(url).scheme}://...", f"{problem}.") from problem
    if "sqlite" in chosen["ENGINE"]:
        chosen["OPTIONS"] = dict(SQLITE_OPTIONS)
        return chosen
    if not chosen["NAME"]:
        raise BadSetting(
            "DATABASE_URL",
            f"{urlsplit(url).scheme}://...",
            "add the name of the database at the end, as in postgresql://user:password@host:5432/name.",
        )
    # Under ASGI threads come and go, so a pool of the process owns the connections, not a thread.
    chosen["CONN_MAX_AGE"] = 0
    # Our transactions wait only for the database. A transaction that is idle for the time of a lease belongs to a
    # suspended process, and its locks would prevent other processes from taking over.
    stuck_ms = int(1000 * max(2.0, environment.lease_s))
    chosen["OPTIONS"] = {
        **chosen.get("OPTIONS", {}),
        "pool": database_pool.options(),
        "connect_timeout": 10,
        # Without a number here Django lets the driver prepare nothing, and each statement is parsed and planned anew.
        "prepare_threshold": PREPARED_AFTER,
        # jit: to compile a statement takes a tenth of a second, longer than any statement of a page.
        "options": f"-c idle_in_transaction_session_timeout={stuck_ms} -c lock_timeout=20000 -c timezone=UTC "
        "-c jit=off",
    }
    return chosen


def read_times() -> None:
    """Times from PostgreSQL are read in our way, in all connections that this process makes from now on."""
    time_loader.use()


def database_files(database: dict[str, Any]) -> list[Path]:
    """The files of an SQLite database: the database, its log of writes, and the memory that its processes share."""
    if "sqlite" not in database["ENGINE"]:
        return []
    return [Path(f"{database['NAME']}{end}") for end in ("", "-wal", "-shm")]


def stored_files(environment: Environment, deployment: str) -> dict[str, Any]:
    """The Storage `artifacts`. In a bucket each deployment has a folder of its own: it removes there what its database
    does not name."""
    where = environment.storage
    if where is None:
        return {
            "BACKEND": "jobs.artifacts.directory_files.DirectoryFiles",
            "OPTIONS": {"location": environment.data / "artifacts"},
        }
    return {
        "BACKEND": "jobs.artifacts.s3_files.S3Files",
        "OPTIONS": {
            "bucket_name": where.bucket,
            "location": f"{where.prefix}/{deployment}".lstrip("/"),
            "endpoint_url": where.endpoint or None,
            "region_name": where.region or ("us-east-1" if where.endpoint else None),
        },
    }


def broker_socket(environment: Environment) -> Path:
    """The Unix socket of the broker that `trainyard up` starts.

    The path of a Unix socket has at most 107 bytes. Where the data directory is too deep for that, the socket is in
    the temporary directory.
    """
    path = environment.data / "broker" / "redis.sock"
    if len(os.fsencode(path)) <= 100:
        return path
    name = hashlib.sha256(os.fsencode(environment.data)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"trainyard-{os.getuid()}-{name}" / "redis.sock"


def redis_url(environment: Environment) -> str:
    """The address of Redis as redis-py and Channels write it."""
    return environment.redis_url or f"unix://{broker_socket(environment)}?db=0"


def broker_url(environment: Environment) -> str:
    """The address of the broker as Kombu writes it. For Kombu a Unix socket is redis+socket://."""
    url = environment.broker_url or redis_url(environment)
    if not url.startswith("unix://"):
        return url
    parts = urlsplit(url)
    number = dict(pair.partition("=")[::2] for pair in parts.query.split("&")).get("db", "0")
    return f"redis+socket://{unquote(parts.path)}?virtual_host={number}"


def channel_layer(environment: Environment) -> dict[str, Any]:
    """The pub/sub layer, because the layer carries only hints: nothing is queued for a process that is not there.

    redis-py's socket timeout of 5 s closes idle sockets during a blocking read, so it is off here.
    """
    host = {"address": redis_url(environment), "socket_timeout": None, "max_connections": 2000}
    return {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [host], "prefix": "ty"},
    }


def celery_settings(environment: Environment) -> dict[str, Any]:
    """Tasks are short and idempotent, and their arguments are ids. Results are rows; the broker never stores them."""
    transport = {
        "visibility_timeout": VISIBILITY_S,
        # The messages of a killed worker are delivered again after VISIBILITY_S. The default scan adds up to 100 s.
        "unacked_restore_interval": 5,
        "unacked_restore_throttle": 1,
    }
    return {
        "broker_url": broker_url(environment),
        "broker_transport_options": transport if "redis" in broker_url(environment) else {},
        "visibility_timeout": VISIBILITY_S,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        # A thread cannot be cancelled, and a task may run twice without harm.
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        # After a reconnect a worker takes as many messages as before.
        "worker_enable_prefetch_count_reduction": False,
        "task_serializer": "json",
        "accept_content": ["json"],
        "task_ignore_result": True,
        "task_store_errors_even_if_ignored": False,
        "task_acks_late": True,
        "task_default_queue": "default",
        "task_create_missing_queues": True,
        "worker_prefetch_multiplier": 1,
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        "worker_send_task_events": False,
        "worker_enable_remote_control": False,
        "timezone": "UTC",
        "enable_utc": True,
        "task_publish_retry_policy": {
            "max_retries": 2,
            "interval_start": 0,
            "interval_step": 0.1,
            "interval_max": 0.2,
        },
    }
