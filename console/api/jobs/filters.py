"""The list filter: AIP-160 over the fields that Vertex documents for jobs.

    state="JOB_STATE_SUCCEEDED" AND display_name:"my_job_*"
    NOT display_name="my_job"    create_time>"2021-05-18T00:00:00Z"    labels.keyA=valueA    labels.keyB:*

As in AIP-160, OR binds tighter than AND, and terms without an operator between them are joined by AND.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Generic, Protocol, Self, TypeVar

from django.db import connection
from django.db.models import F, Q, TextField, Value
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Coalesce
from django.db.models.lookups import Exact

from console.api.errors import BadRequest
from jobs.rules.lifecycle.states import JobState, wire_name

MAX_LENGTH = 2000
MAX_DEPTH = 20
MAX_STARS = 8

_FIELD = re.compile(r"[A-Za-z_][\w-]*(?:\.(?:\"[^\"]*\"|[\w\-]+))*")
_OPERATOR = re.compile(r"!=|<=|>=|=|<|>|:")
_QUOTED = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'")
_BARE = re.compile(r"[^\s()\"']+")
_SPACE = re.compile(r"\s*")
Fields = Mapping[str, Callable[[str, str], Q]]
_STATES = {wire_name(state): state for state in JobState}
_COMPARE = {"=": "", "<": "__lt", "<=": "__lte", ">": "__gt", ">=": "__gte"}


def parse(text: str, more: Fields | None = None, without: Collection[str] = ()) -> Q:
    """The rows that the filter asks for. Raises BadRequest, which names the position of the first mistake.

    `more`: fields beside those of jobs, or instead of them, each with what `operator value` means. `without`: fields
    of jobs that these rows do not have.
    """
    if len(text) > MAX_LENGTH:
        raise BadRequest(
            "filter", f"The filter has {len(text)} characters; at most {MAX_LENGTH} are possible."
        )
    if not text.strip():
        return Q()
    fields = {name: means for name, means in {**JOB_FIELDS, **(more or {})}.items() if name not in without}
    return _Filter(text, fields).whole()


class Condition(Protocol):
    """What a restriction becomes: it can be joined and negated."""

    def __and__(self, other: Self, /) -> Self: ...
    def __or__(self, other: Self, /) -> Self: ...
    def __invert__(self) -> Self: ...


T = TypeVar("T", bound=Condition)


class FilterReader(Generic[T]):
    """A recursive descent parser of AIP-160. A subclass says what `field operator value` means."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0

    def whole(self) -> T:
        found = self.expression()
        self.space()
        if self.at < len(self.text):
            raise self.refusal("The filter does not end where it should")
        return found

    def expression(self) -> T:
        found = self.factor()
        while True:
            self.space()
            if self.at == len(self.text) or self.text[self.at] == ")":
                return found
            self.word("AND")
            found &= self.factor()

    def factor(self) -> T:
        found = self.term()
        while self.word("OR"):
            found |= self.term()
        return found

    def term(self) -> T:
        if self.word("NOT") or self.sign("-"):
            return ~self.simple()
        return self.simple()

    def simple(self) -> T:
        if not self.sign("("):
            return self.restriction()
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.refusal("Too many parentheses within each other")
        found = self.expression()
        if not self.sign(")"):
            raise self.refusal("A closing parenthesis is missing")
        self.depth -= 1
        return found

    def restriction(self) -> T:
        return self.meaning(self.field(), self.operator(), self.value())

    def meaning(self, field: str, operator: str, value: str) -> T:
        raise NotImplementedError

    def field(self) -> str:
        return self.match(_FIELD, "The name of a field is expected").group()

    def operator(self) -> str:
        return self.match(_OPERATOR, "An operator (= != < <= > >= :) is expected").group()

    def value(self) -> str:
        self.space()
        quoted = _QUOTED.match(self.text, self.at)
        if quoted is None:
            return self.match(_BARE, "A value is expected").group()
        self.at = quoted.end()
        return re.sub(r"\\(.)", r"\1", quoted[1] if quoted[1] is not None else quoted[2])

    def match(self, pattern: re.Pattern[str], expected: str) -> re.Match[str]:
        self.space()
        found = pattern.match(self.text, self.at)
        if found is None:
            raise self.refusal(expected)
        self.at = found.end()
        return found

    def word(self, word: str) -> bool:
        self.space()
        found = re.compile(rf"{word}(?=[\s(])").match(self.text, self.at)
        self.at = found.end() if found else self.at
        return found is not None

    def sign(self, sign: str) -> bool:
        self.space()
        found = self.text.startswith(sign, self.at)
        self.at += len(sign) if found else 0
        return found

    def space(self) -> None:
        found = _SPACE.match(self.text, self.at)
        self.at = found.end() if found else self.at

    def refusal(self, what: str) -> BadRequest:
        return BadRequest("filter", f"{what} at character {self.at + 1} of the filter.")


class _Filter(FilterReader[Q]):
    def __init__(self, text: str, fields: Fields) -> None:
        super().__init__(text)
        self.fields = fields

    def meaning(self, field: str, operator: str, value: str) -> Q:
        if field.startswith("labels."):
            return _label(field[len("labels.") :].strip('"'), operator, value)
        reader = self.fields.get(_snake(field))
        if reader is None:
            known = f"{', '.join(self.fields)} and labels.<key>"
            raise BadRequest("filter", f"Cannot filter by {field!r}. Known are {known}.")
        return reader(operator, value)


def _display_name(operator: str, value: str) -> Q:
    return text_field("display_name", "display_name", operator, value)


def text_field(name: str, column: str, operator: str, value: str) -> Q:
    """`= != :` of a text; `:` finds a part of it, and stars stand for anything. `name`: for the message."""
    if operator in ("=", "!="):
        return unless(operator, Q(**{column: value}))
    if operator != ":":
        raise BadRequest("filter", f"{name} can be compared with =, != and : only.")
    if "*" not in value:
        return Q(**{f"{column}__contains": value})
    parts = re.split(r"\*+", value)
    if len(parts) > MAX_STARS + 1:
        raise BadRequest("filter", f"At most {MAX_STARS} stars are possible.")
    return Q(**{f"{column}__regex": _pattern([re.escape(part) for part in parts])})


def _pattern(parts: list[str]) -> str:
    """A regular expression for the parts in this order with anything between them.

    SQLite calls Python's `re`, which would try all ways to place the parts and block the process for hours. The first
    place of each part is always good enough, so an atomic group forbids `re` to try another one.
    """
    first, *middle, last = parts
    between = "(?>.*?{})" if connection.vendor == "sqlite" else ".*{}"
    return f"^{first}{''.join(map(between.format, middle))}.*{last}$"


def _state(operator: str, value: str) -> Q:
    return state_field(operator, value, _STATES, lambda state: Q(state=state.value))


def state_field(
    operator: str, value: str, states: Mapping[str, JobState], found: Callable[[JobState], Q]
) -> Q:
    if operator not in ("=", "!="):
        raise BadRequest("filter", "state can be compared with = and != only.")
    if value not in states:
        raise BadRequest("filter", f"There is no state {value!r}. Known are {', '.join(states)}.")
    return unless(operator, found(states[value]))


def _create_time(operator: str, value: str) -> Q:
    try:
        when = datetime.fromisoformat(value)
        when = (when if when.tzinfo else when.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadRequest(
            "filter", f"create_time must be a time such as 2026-05-18T00:00:00Z, not {value!r}."
        ) from None
    if operator == "!=":
        return ~Q(created_at=when)
    if operator not in _COMPARE:
        raise BadRequest("filter", "create_time can be compared with =, !=, <, <=, > and >= only.")
    return Q(**{f"created_at{_COMPARE[operator]}": when})


def _label(key: str, operator: str, value: str) -> Q:
    if operator == ":" and value == "*":
        return Q(labels__has_key=key)
    if operator not in ("=", "!=", ":"):
        raise BadRequest("filter", "Labels can be compared with =, != and :* only.")
    # A missing label counts as an empty one, so that NOT also finds the jobs without the label.
    found = Coalesce(KeyTextTransform(key, F("labels")), Value(""), output_field=TextField())
    return unless(operator, Q(Exact(found, Value(value))))


def unless(operator: str, found: Q) -> Q:
    return ~found if operator == "!=" else found


def _snake(name: str) -> str:
    return re.sub(r"([A-Z])", lambda match: "_" + match[1].lower(), name)


JOB_FIELDS: Fields = {"display_name": _display_name, "state": _state, "create_time": _create_time}
