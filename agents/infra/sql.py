"""Queries that are asked at every turn, spelt out as SQL once.

Nine tenths of what a small query costs through the ORM is to spell it out, and half of what it costs PostgreSQL is to
plan it. Here the ORM spells it out once for all, PostgreSQL keeps the plan, and what differs from time to time is
`Given` by name. What is asked is still written in the ORM's words, so that the models stay the one truth about tables.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from enum import Enum
from functools import cached_property
from typing import Any, Generic, TypeVar
from weakref import WeakSet

import psycopg
from django.db import DEFAULT_DB_ALIAS, connection, transaction
from django.db.models import AutoField, Expression, Field, ForeignObject, Lookup, Model, QuerySet
from django.db.models.sql import UpdateQuery

M = TypeVar("M", bound=Model)
Row = tuple[Any, ...]
Converter = Callable[[Any, Any, Any], Any]


class Parameter(Expression):
    """A value that is given when the query is asked. `column`: where it is written to."""

    def __init__(self, name: str, column: Field[Any, Any] | None = None) -> None:
        super().__init__(output_field=column)
        self.name, self.column = name, column

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, Any]:
        return "%s", [self]

    def of(self, values: dict[str, Any]) -> Any:
        """As the database's driver wants it."""
        value = values[self.name]
        if self.column is not None:
            return self.column.get_db_prep_save(value, connection)
        if isinstance(value, datetime):
            return connection.ops.adapt_datetimefield_value(value)
        if isinstance(value, Collection) and not isinstance(value, str):
            return list(value) if connection.vendor == "postgresql" else json.dumps(list(value))
        return value.value if isinstance(value, Enum) else value


@ForeignObject.register_lookup
@Field.register_lookup
class AmongParameter(Lookup):
    """`pk__among=Given("ids")`: like `in`, but one statement whatever the number of values."""

    lookup_name = "among"

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, Any]:
        left, of_left = self.process_lhs(compiler, connection)
        right, of_right = self.process_rhs(compiler, connection)
        one_of = (
            f"= ANY {right}"
            if connection.vendor == "postgresql"
            else f"IN (SELECT value FROM json_each{right})"
        )
        return f"{left} {one_of}", [*of_left, *of_right]


class _PreparedCursor(psycopg.Cursor[Any]):
    """The driver's own. Django's writes the values into the text, which then cannot be prepared."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        return super().execute(query, params, **{**options, "prepare": True})


def _prepared() -> Any:
    connection.ensure_connection()
    with connection.wrap_database_errors:
        return connection._prepare_cursor(_PreparedCursor(connection.connection))  # type: ignore[attr-defined]


# One thread at a time spells: the ORM's compiler is not made for two.
_COMPILE_LOCK = threading.RLock()
_ALL: WeakSet[_PreparedStatement] = WeakSet()


def prepare_all() -> None:
    """All that this process has, before anybody asks: a scheduler's first pass would else spell for 50 ms."""
    for statement in list(_ALL):
        with transaction.atomic():  # one that locks rows is spelt nowhere else
            statement.spell()


class _PreparedStatement:
    """`make` gives the query; it is called once, when the query is first asked."""

    def __init__(self, make: Callable[[], QuerySet[Any, Any]]) -> None:
        self._make = make
        _ALL.add(self)

    def spell(self) -> None:
        self._spelt  # noqa: B018  once

    @cached_property
    def _compiler(self) -> Any:
        return self._make().query.get_compiler(DEFAULT_DB_ALIAS)

    @cached_property
    def _spelt(self) -> tuple[str, Sequence[Any]]:
        with _COMPILE_LOCK:
            return self._compiler.as_sql()  # type: ignore[no-any-return]

    def _run(self, values: dict[str, Any]) -> Any:
        """The cursor, with the answer."""
        sql, parameters = self._spelt
        bound = [each.of(values) if isinstance(each, Parameter) else each for each in parameters]
        cursor = _prepared() if connection.vendor == "postgresql" else connection.cursor()
        cursor.execute(sql, bound)
        return cursor


class SelectStatement(_PreparedStatement):
    """`read(host=1)` answers with the rows of a `values_list`."""

    def __call__(self, **values: Any) -> list[Row]:
        with self._run(values) as cursor:
            rows = cursor.fetchall()
        return [self._converted(row) for row in rows] if self._converters else rows

    def column(self, **values: Any) -> list[Any]:
        return [row[0] for row in self(**values)]

    @cached_property
    def _converters(self) -> list[tuple[int, list[Converter], Any]]:
        """What makes Python's values of the database's, by place."""
        self._spelt  # noqa: B018  selects
        found = self._compiler.get_converters([column for column, *_ in self._compiler.select])
        return [(place, converters, column) for place, (converters, column) in found.items()]

    def _converted(self, row: Row) -> Row:
        values = list(row)
        for place, converters, column in self._converters:
            for convert in converters:
                values[place] = convert(values[place], column, connection)
        return tuple(values)


class UpdateStatement(_PreparedStatement):
    """`change(pk=1, phase="closed")` updates, and answers with how many rows. `columns` get what is given by their
    name; `values` are constants, expressions, or `Given` under another name."""

    def __init__(self, make: Callable[[], QuerySet[Any, Any]], *columns: str, **values: Any) -> None:
        super().__init__(make)
        self._columns, self._values = columns, values

    def __call__(self, **values: Any) -> int:
        with self._run(values) as cursor:
            return int(cursor.rowcount)

    @cached_property
    def _compiler(self) -> Any:
        rows = self._make()
        query: Any = rows.query.chain(UpdateQuery)
        field = rows.model._meta.get_field
        given = {name: Parameter(name, field(name)) for name in self._columns}
        query.add_update_values(given | self._values)
        return query.get_compiler(DEFAULT_DB_ALIAS)


class UpdateStatements:
    """A `Change` for each set of columns that are written together: `writing({"phase": "closed"}, run=1)`."""

    def __init__(self, make: Callable[[], QuerySet[Any, Any]]) -> None:
        self._make = make
        self._changes: dict[frozenset[str], UpdateStatement] = {}

    def __call__(self, columns: Mapping[str, Any], **values: Any) -> int:
        names = frozenset(columns)
        change = self._changes.get(names)
        if change is None:
            change = self._changes[names] = UpdateStatement(self._make, *sorted(names))
        return change(**columns, **values)


class InsertStatement(Generic[M]):
    """`insert(row)` writes a new object as `save` would, but for a key that the database gives: nobody is told it."""

    def __init__(self, model: type[M]) -> None:
        self._model = model

    @cached_property
    def _fields(self) -> list[Field[Any, Any]]:
        return [each for each in self._model._meta.concrete_fields if not isinstance(each, AutoField)]

    @cached_property
    def _spelt(self) -> str:
        quote = connection.ops.quote_name
        names = ", ".join(quote(str(each.column)) for each in self._fields)
        places = ", ".join(["%s"] * len(self._fields))
        return f"INSERT INTO {quote(self._model._meta.db_table)} ({names}) VALUES ({places})"

    def __call__(self, row: M) -> M:
        bound = [each.get_db_prep_save(each.pre_save(row, True), connection) for each in self._fields]
        with _prepared() if connection.vendor == "postgresql" else connection.cursor() as cursor:
            cursor.execute(self._spelt, bound)
        row._state.adding, row._state.db = False, DEFAULT_DB_ALIAS
        return row


class PartialModel(Generic[M]):
    """The columns of a model but for some, and its objects made of them."""

    def __init__(self, model: type[M], but: Collection[str] = (), only: Collection[str] = ()) -> None:
        fields = [each for each in model._meta.concrete_fields if each.name not in but]
        self._model = model
        self.names = [each.attname for each in fields if not only or each.name in only]
        self._known = frozenset(self.names)

    def of(self, row: Collection[Any]) -> M:
        return self._model.from_db(DEFAULT_DB_ALIAS, self._known, row)
