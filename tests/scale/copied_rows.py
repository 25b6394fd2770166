"""Rows by COPY in place of INSERT, for seed.py, which fills PostgreSQL in a fraction of the time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from datetime import datetime
from unittest import mock

from django.db import connection, connections, models
from django.db.models import Field, Model, QuerySet
from django.db.models.expressions import DatabaseDefault

# The values of these fields go to the driver as they are, if they are of these types.
PLAIN_FIELDS = frozenset(
    {
        *(models.AutoField, models.BigAutoField, models.BigIntegerField, models.BinaryField),
        *(models.BooleanField, models.CharField, models.DateTimeField, models.FloatField),
        *(models.ForeignKey, models.IntegerField, models.OneToOneField, models.PositiveIntegerField),
        *(models.PositiveSmallIntegerField, models.SmallIntegerField, models.TextField),
    }
)
PLAIN_TYPES = frozenset({bool, bytes, datetime, float, int, str, type(None)})


@contextlib.contextmanager
def copied() -> Iterator[None]:
    """Inside, `bulk_create` writes the same rows by COPY, where the database is PostgreSQL."""
    if connection.vendor != "postgresql":
        yield
        return
    with mock.patch.object(QuerySet, "bulk_create", _bulk_create):
        yield


def _bulk_create(
    rows: QuerySet, objects: Iterable[Model], batch_size: int | None = None, ignore_conflicts: bool = False
) -> list[Model]:
    """A conflict is an error: the rows of a new deployment have none."""
    found = list(objects)
    _number(rows.model, found)
    fields = _filled(rows.model, found)
    plain = [(field, field.attname, type(field) in PLAIN_FIELDS) for field in fields]
    own, columns = connections["default"], ", ".join(f'"{field.column}"' for field in fields)
    statement = f'COPY "{rows.model._meta.db_table}" ({columns}) FROM STDIN'
    with own.cursor() as cursor, cursor.copy(statement) as copy:
        for each in found:
            each._prepare_related_fields_for_save(operation_name="bulk_create")
            values = each.__dict__
            copy.write_row(
                [
                    value
                    if is_plain and type(value := values[name]) in PLAIN_TYPES
                    else field.get_db_prep_save(values[name], own)
                    for field, name, is_plain in plain
                ]
            )
    for each in found:
        each._state.adding, each._state.db = False, own.alias
    return found


def _filled(model: type[Model], objects: list[Model]) -> list[Field]:
    """Without the columns that the database fills."""
    of_database = {
        field.attname
        for field in model._meta.concrete_fields
        if field.has_db_default()
        and any(isinstance(each.__dict__[field.attname], DatabaseDefault) for each in objects)
    }
    return [field for field in model._meta.concrete_fields if field.attname not in of_database]


def _number(model: type[Model], objects: list[Model]) -> None:
    """Give them their ids, as the database would."""
    key, without = model._meta.pk, [each for each in objects if each.pk is None]
    if not without:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT nextval(pg_get_serial_sequence(%s, %s)) FROM generate_series(1, %s)",
            [f'"{model._meta.db_table}"', key.column, len(without)],
        )
        for each, (number,) in zip(without, cursor.fetchall(), strict=True):
            each.pk = number
