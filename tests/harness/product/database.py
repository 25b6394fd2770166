"""A look into the product's database from outside, without Django: for evidence."""

from __future__ import annotations

import datetime
import json
import sqlite3

import psycopg
from psycopg.rows import dict_row

JSON_COLUMNS = ("flags", "spec", "order", "survivors", "gpu_uuids", "facts", "checklist")


def query(url, statement):
    """Rows as dicts, the same for both databases: datetimes as seconds, JSON decoded."""
    if url.startswith("postgres"):
        with psycopg.connect(url, row_factory=dict_row, connect_timeout=10) as connection:
            rows = connection.execute(statement).fetchall()
    else:
        connection = sqlite3.connect(f"file:{url}?mode=ro", uri=True, timeout=30)
        try:
            connection.row_factory = sqlite3.Row
            rows = [dict(row) for row in connection.execute(statement)]
        finally:
            connection.close()
    return [{name: plain(name, value) for name, value in row.items()} for row in rows]


def plain(name, value):
    if isinstance(value, datetime.datetime):
        return value.timestamp()
    if isinstance(value, str) and (name == "at" or name.endswith(("_at", "_until", "_since"))):
        return datetime.datetime.fromisoformat(value).replace(tzinfo=datetime.UTC).timestamp()
    if isinstance(value, str) and name in JSON_COLUMNS:
        return json.loads(value)
    return value
