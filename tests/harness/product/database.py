"""Read the product's database from outside, without Django: for evidence."""

from __future__ import annotations

import contextlib
import datetime
import json
import sqlite3
import threading

import psycopg
from psycopg.rows import dict_row

JSON_COLUMNS = ("flags", "spec", "order", "survivors", "gpu_uuids", "facts", "checklist")


class DatabaseReader:
    """One connection for all queries to PostgreSQL, where each costs a process. SQLite's file may be replaced."""

    def __init__(self, url):
        self.url = url
        self.connection = None
        self.lock = threading.Lock()

    def query(self, statement):
        """Return rows as dicts, the same for both databases: datetimes as seconds, JSON decoded."""
        rows = self.postgres(statement) if self.url.startswith("postgres") else self.sqlite(statement)
        return [{name: plain(name, value) for name, value in row.items()} for row in rows]

    def sqlite(self, statement):
        with contextlib.closing(
            sqlite3.connect(f"file:{self.url}?mode=ro", uri=True, timeout=30)
        ) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(statement)]

    def postgres(self, statement):
        with self.lock:
            if self.connection is not None:
                with contextlib.suppress(psycopg.OperationalError):  # the server was killed since
                    return self.connection.execute(statement).fetchall()
                self.close()
            self.connection = psycopg.connect(
                self.url, row_factory=dict_row, connect_timeout=10, autocommit=True
            )
            return self.connection.execute(statement).fetchall()

    def close(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None


def plain(name, value):
    if isinstance(value, datetime.datetime):
        return value.timestamp()
    if isinstance(value, str) and value and (name == "at" or name.endswith(("_at", "_until", "_since"))):
        return datetime.datetime.fromisoformat(value).replace(tzinfo=datetime.UTC).timestamp()
    if isinstance(value, str) and name in JSON_COLUMNS:
        value = json.loads(value)
    return english(value)


def english(value):
    """Columns of sentences keep behind the English how it was made (agents/infra/texts.py)."""
    if isinstance(value, str):
        return value.partition("\x1f")[0]
    if isinstance(value, list):
        return [english(each) for each in value]
    return {key: english(each) for key, each in value.items()} if isinstance(value, dict) else value
