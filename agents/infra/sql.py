"""Prepared statements: queries that run very often, compiled to SQL once.

Nine tenths of the cost of a small query through the ORM is compiling it, and half of its cost in PostgreSQL is planning
it. Here the ORM compiles a query once for all, PostgreSQL keeps the plan, and each value that differs from call to call
is a named `Parameter`. The query is still written with the ORM, so that the models stay the one truth about the tables.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from enum import Enum
from functools import cached_property
from typing import Any, Generic, TypeVar
from weakref import WeakSet

import psycopg
import psycopg.sql
from django.db import DEFAULT_DB_ALIAS, DatabaseError, InterfaceError, connection, transaction
from django.db.models import AutoField, Expression, Field, ForeignObject, Lookup, Model, QuerySet
from django.db.models.base import ModelState
from django.db.models.sql import UpdateQuery

from agents.infra.arrays import written_array
from agents.infra.documents import is_document, read_documents

# A process has fewer statements. The driver forgets those beyond this number, and they would be planned again.
MAX_PREPARED = 500
AMONG = "= ANY"

M = TypeVar("M", bound=Model)
Row = tuple[Any, ...]
Converter = Callable[[Any, Any, Any], Any]


class Parameter(Expression):
    """A value that is given by name when the statement runs. `column` is the column that it is written to, if any."""

    def __init__(self, name: str, column: Field[Any, Any] | None = None) -> None:
        super().__init__(output_field=column)
        self.name, self.column = name, column
        self.is_collection = False

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, Any]:
        return "%s", [self]

    def value_for_driver(self, values: dict[str, Any]) -> Any:
        """This parameter's value among those given, in the form that the database's driver takes."""
        return self._for_driver(values[self.name])

    def only_value_for_driver(self, values: dict[str, Any]) -> Any:
        """The same; of a collection with one value, that value."""
        value = values[self.name]
        return self._for_driver(next(iter(value)) if self.is_collection else value)

    def _for_driver(self, value: Any) -> Any:
        if self.column is not None:
            return self.column.get_db_prep_save(value, connection)
        if isinstance(value, datetime):
            return connection.ops.adapt_datetimefield_value(value)
        if isinstance(value, Collection) and not isinstance(value, str):
            return written_array(value) if connection.vendor == "postgresql" else json.dumps(list(value))
        return value.value if isinstance(value, Enum) else value


@ForeignObject.register_lookup
@Field.register_lookup
class AmongParameter(Lookup):
    """`pk__among=Parameter("ids")`: like `in`, but the statement is the same whatever the number of values."""

    lookup_name = "among"

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, Any]:
        left, left_parameters = self.process_lhs(compiler, connection)
        right, right_parameters = self.process_rhs(compiler, connection)
        self.rhs.is_collection = True
        condition = (
            f"{AMONG} {right}"
            if connection.vendor == "postgresql"
            else f"IN (SELECT value FROM json_each{right})"
        )
        return f"{left} {condition}", [*left_parameters, *right_parameters]


class _PreparedCursor(psycopg.Cursor[Any]):
    """The driver's own cursor. Django's writes the values into the SQL text, which then cannot be prepared."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        return super().execute(query, params, **{**options, "prepare": True})

    def _send_query_prepared(self, name: bytes, pgq: Any, **options: Any) -> None:
        self._query = (
            pgq  # Django's list of queries shows it; the driver leaves it out for prepared statements
        )
        super()._send_query_prepared(name, pgq, **options)


def _prepared_cursor() -> Any:
    connection.ensure_connection()
    with connection.wrap_database_errors:
        connection.connection.prepared_max = MAX_PREPARED
        return connection._prepare_cursor(_PreparedCursor(connection.connection))  # type: ignore[attr-defined]


def _with_constants(sql: str, parameters: Sequence[Any]) -> tuple[str, list[Parameter]]:
    """Write the values that never differ into the SQL: a kept plan could not use an index `WHERE state = 'QUEUED'` for
    a state that it does not know."""
    first, *others = sql.split("%s")
    text, left = [first], []
    for each, after in zip(parameters, others, strict=True):
        if isinstance(each, Parameter):
            left.append(each)
            text += ["%s", after]
        else:
            constant = each.value if isinstance(each, Enum) else each
            text += [psycopg.sql.Literal(constant).as_string(None).replace("%", "%%"), after]
    return "".join(text), left


@contextmanager
def write_together() -> Iterator[None]:
    """Send the statements of this block to PostgreSQL in one trip. An error of any of them is raised at the end.

    They are done in their order. How many rows an `UpdateStatement` has changed is not known in the block.
    """
    if not _has_pipeline():
        yield
        return
    connection.ensure_connection()
    with connection.wrap_database_errors, connection.connection.pipeline():
        yield


class AllOrNothing:
    """A block of which an error leaves nothing, while the transaction around it goes on.

    As `transaction.atomic`, but its savepoint takes no trips of its own: `begin` sets it, in a `write_together` and
    before all else that is asked or written there, and it ends with the transaction. `one_of_many`: it ends with the
    block. Else the blocks of a transaction would lie within each other, and a server is slow beyond 64 of them.
    """

    def __init__(self, one_of_many: bool = False) -> None:
        self._savepoint: str | None = None
        self._one_of_many = one_of_many

    def begin(self) -> None:
        self._savepoint = transaction.savepoint()
        connection.savepoint_ids.append(self._savepoint)  # what is posted for the commit is then undone, too

    def __enter__(self) -> AllOrNothing:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._savepoint is None:
            return
        connection.savepoint_ids.remove(self._savepoint)
        if kind is not None:
            try:
                transaction.set_rollback(False)
                transaction.savepoint_rollback(self._savepoint)
                transaction.savepoint_commit(self._savepoint)
            except (DatabaseError, InterfaceError):  # the error that led here says more
                transaction.set_rollback(True)
        elif self._one_of_many:
            transaction.savepoint_commit(self._savepoint)


def _has_pipeline() -> bool:
    """SQLite has no trips to save, and a libpq before version 14 sends one statement at a time."""
    return connection.vendor == "postgresql" and psycopg.Pipeline.is_supported()


# One thread at a time compiles: the ORM's compiler is not thread-safe.
_COMPILE_LOCK = threading.RLock()
_STATEMENTS: WeakSet[_PreparedStatement] = WeakSet()


def prepare_all() -> None:
    """Compile every statement of this process now. Otherwise the first scheduling pass would compile for 50 ms."""
    for statement in list(_STATEMENTS):
        with transaction.atomic():  # a statement that locks rows compiles only in a transaction
            statement.compile()


class _PreparedStatement:
    """`make` returns the query. It is called once, when the statement first runs."""

    def __init__(self, make: Callable[[], QuerySet[Any, Any]]) -> None:
        self._make = make
        _STATEMENTS.add(self)

    def compile(self) -> None:
        self._compiled  # noqa: B018  a cached property

    @cached_property
    def _compiler(self) -> Any:
        return self._make().query.get_compiler(DEFAULT_DB_ALIAS)

    @cached_property
    def _compiled(self) -> tuple[str, Sequence[Any]]:
        with _COMPILE_LOCK:
            sql, parameters = self._compiler.as_sql()
            return (
                (sql, parameters) if connection.vendor != "postgresql" else _with_constants(sql, parameters)
            )

    @cached_property
    def _for_one(self) -> str:
        """The statement for collections of one value each. PostgreSQL keeps the plan of this one only: it plans
        `= ANY` anew for each array, because a plan for arrays of unknown length looks more expensive."""
        return self._compiled[0].replace(f"{AMONG} (", "= (")

    def _run(self, values: dict[str, Any]) -> Any:
        """Run the statement; returns the cursor with the result."""
        if connection.vendor == "postgresql":
            return self._run_prepared(values)
        sql, parameters = self._compiled
        cursor = connection.cursor()
        cursor.execute(
            sql,
            [each.value_for_driver(values) if isinstance(each, Parameter) else each for each in parameters],
        )
        return cursor

    def _run_prepared(self, values: dict[str, Any]) -> Any:
        sql, parameters = self._compiled
        cursor = _prepared_cursor()
        if all(len(values[each.name]) == 1 for each in parameters if each.is_collection):
            cursor.execute(self._for_one, [each.only_value_for_driver(values) for each in parameters])
        else:
            cursor.execute(sql, [each.value_for_driver(values) for each in parameters])
        return cursor


class SelectStatement(_PreparedStatement):
    """`read(host=1)` returns the rows of a `values_list`."""

    def __call__(self, **values: Any) -> list[Row]:
        rows = _take_read_ahead(self, values)
        if rows is None:
            with self._run(values) as cursor:
                rows = cursor.fetchall()
        if not self._converters and not self._documents:
            return rows
        found = [self._converted(row) for row in rows]
        for position in self._documents:
            read_documents(found, position)
        return [tuple(row) for row in found]

    def column(self, **values: Any) -> list[Any]:
        return [row[0] for row in self(**values)]

    @cached_property
    def _converters(self) -> list[tuple[int, list[Converter], Any]]:
        """What turns the database's values into Python's, by position in the row."""
        self._compiled  # noqa: B018  sets the columns that are selected
        found = self._compiler.get_converters([column for column, *_ in self._compiler.select])
        return [
            (position, converters, column)
            for position, (converters, column) in found.items()
            if position not in self._documents
        ]

    @cached_property
    def _documents(self) -> list[int]:
        """The positions of columns that are JSON documents, which are read together."""
        self._compiled  # noqa: B018  sets the columns that are selected
        columns = [column for column, *_ in self._compiler.select]
        return [position for position, column in enumerate(columns) if is_document(column)]

    def _converted(self, row: Row) -> list[Any]:
        values = list(row)
        for position, converters, column in self._converters:
            for convert in converters:
                values[position] = convert(values[position], column, connection)
        return values


class _ReadAhead(threading.local):
    """What this thread has read before it was asked for: by statement, the values it was asked with, and the rows."""

    def __init__(self) -> None:
        self.rows: dict[SelectStatement, tuple[Mapping[str, Any], list[Row], bool]] = {}


_read_ahead = _ReadAhead()


@contextmanager
def read_ahead(reads: Mapping[SelectStatement, Mapping[str, Any]], for_all: bool = False) -> Iterator[None]:
    """Run these statements with these values now, in their order and in one trip to PostgreSQL.

    In the block, the first call of each of them with the same values (`for_all`: every such call) returns what was
    read. Every other call reads anew. A trip takes several times as long as most statements, and after it the thread
    waits for its turn again. What a block around this one has read for all its calls is not read again.
    """
    reads = {each: values for each, values in reads.items() if not _is_read_for_all(each, values)}
    if not reads or not _has_pipeline():
        yield
        return
    found = _rows_of(reads)
    _read_ahead.rows.update({each: (values, rows, for_all) for each, (values, rows) in found.items()})
    try:
        yield
    finally:
        for statement in reads:
            _read_ahead.rows.pop(statement, None)


def _rows_of(
    reads: Mapping[SelectStatement, Mapping[str, Any]],
) -> dict[SelectStatement, tuple[Mapping[str, Any], list[Row]]]:
    with write_together():
        cursors = [statement._run(dict(values)) for statement, values in reads.items()]
        rows = [cursor.fetchall() for cursor in cursors]
    for cursor in cursors:
        cursor.close()
    return {
        statement: (values, found) for (statement, values), found in zip(reads.items(), rows, strict=True)
    }


def _is_read_for_all(statement: SelectStatement, values: Mapping[str, Any]) -> bool:
    known, _, for_all = _read_ahead.rows.get(statement, (None, None, False))
    return for_all and known == values


def _take_read_ahead(statement: SelectStatement, values: Mapping[str, Any]) -> list[Row] | None:
    """The rows that were read ahead for this call, once; None if there are none."""
    known, rows, for_all = _read_ahead.rows.get(statement, (None, None, False))
    if known != values:
        return None
    if not for_all:
        del _read_ahead.rows[statement]
    return rows


class UpdateStatement(_PreparedStatement):
    """`update(pk=1, phase="closed")` updates rows and returns how many.

    Each of `columns` gets the value that is given under its name. `values` are constants, expressions, or parameters
    with a name of their own.
    """

    def __init__(self, make: Callable[[], QuerySet[Any, Any]], *columns: str, **values: Any) -> None:
        super().__init__(make)
        self._columns, self._values = columns, values

    def __call__(self, **values: Any) -> int:
        with self._run(values) as cursor:
            return int(cursor.rowcount)

    def counted_later(self, **values: Any) -> Callable[[], int]:
        """For `write_together`. Returns a function that tells, after the block, how many rows were updated."""
        cursor = self._run(values)
        return lambda: int(cursor.rowcount)

    @cached_property
    def _compiler(self) -> Any:
        rows = self._make()
        query: Any = rows.query.chain(UpdateQuery)
        field = rows.model._meta.get_field
        given = {name: Parameter(name, field(name)) for name in self._columns}
        query.add_update_values(given | self._values)
        return query.get_compiler(DEFAULT_DB_ALIAS)


class UpdateStatements:
    """An UpdateStatement for each set of columns that are written together: `update({"phase": "closed"}, run=1)`."""

    def __init__(self, make: Callable[[], QuerySet[Any, Any]]) -> None:
        self._make = make
        self._statements: dict[frozenset[str], UpdateStatement] = {}

    def __call__(self, columns: Mapping[str, Any], **values: Any) -> int:
        names = frozenset(columns)
        statement = self._statements.get(names)
        if statement is None:
            statement = self._statements[names] = UpdateStatement(self._make, *sorted(names))
        return statement(**columns, **values)


class InsertStatement(Generic[M]):
    """`insert(row)` writes a new object as `save` would, but the object does not learn the key from the database.

    `insert.many(rows)` writes several, in one trip to the database.
    """

    def __init__(self, model: type[M]) -> None:
        self._model = model

    @cached_property
    def _fields(self) -> list[Field[Any, Any]]:
        return [each for each in self._model._meta.concrete_fields if not isinstance(each, AutoField)]

    @cached_property
    def _compiled(self) -> str:
        quote = connection.ops.quote_name
        names = ", ".join(quote(str(each.column)) for each in self._fields)
        placeholders = ", ".join(["%s"] * len(self._fields))
        return f"INSERT INTO {quote(self._model._meta.db_table)} ({names}) VALUES ({placeholders})"

    def __call__(self, row: M) -> M:
        self.many([row])
        return row

    def many(self, rows: Collection[M]) -> None:
        if not rows:
            return
        bound = [
            [each.get_db_prep_save(each.pre_save(row, True), connection) for each in self._fields]
            for row in rows
        ]
        with _prepared_cursor() if connection.vendor == "postgresql" else connection.cursor() as cursor:
            if len(bound) == 1:
                cursor.execute(self._compiled, bound[0])
            else:
                cursor.executemany(self._compiled, bound)
        for row in rows:
            row._state.adding, row._state.db = False, DEFAULT_DB_ALIAS


class PartialModel(Generic[M]):
    """Some columns of a model, and its objects built from rows of these columns.

    The columns are `only` the named ones, or all `without` the named ones. An object fetches the others when it is
    asked for them.
    """

    def __init__(self, model: type[M], without: Collection[str] = (), only: Collection[str] = ()) -> None:
        fields = [each for each in model._meta.concrete_fields if each.name not in without]
        self._model = model
        self.names = [each.attname for each in fields if not only or each.name in only]

    def build(self, row: Collection[Any]) -> M:
        """As `Model.from_db` does, which takes several times as long: it looks at each field of the model."""
        made = self._model.__new__(self._model)
        made._state = state = ModelState()
        state.adding, state.db = False, DEFAULT_DB_ALIAS
        made.__dict__.update(zip(self.names, row, strict=True))
        return made
