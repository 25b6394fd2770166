"""Sentences (texts.py) in Django: the columns that keep them, and `shown`, which pages ask for their language. What it
returns knows its moments, so that a page can show them in the zone of its reader.

In the database they are text and JSON like any other, so there is nothing to migrate.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any

from django.db import models
from django.utils import translation

from agents.infra import texts

# Stands around moments while a sentence is put together. It is made anew at each start, so nobody can write it into a
# value.
_MARK = f"\x1e{secrets.token_hex(8)}\x1e"
# The names of the values that are sentences.
SENTENCES = frozenset({"title", "text", "fix", "now"})


class SentenceField(models.TextField):  # type: ignore[type-arg]
    """One sentence."""

    def from_db_value(self, value: str | None, *_: object) -> str | None:
        return texts.read(value) if value else value

    def get_prep_value(self, value: Any) -> Any:
        return texts.stored(value) if isinstance(value, str) else super().get_prep_value(value)

    def deconstruct(self) -> Any:
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.TextField", args, kwargs


class SentenceRowsField(models.JSONField):
    """`[{flag, since, text}]`: a list of rows, or one row, some of whose values are sentences."""

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return _changed(super().from_db_value(value, expression, connection), texts.read)

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        return super().get_db_prep_value(_changed(value, texts.stored), connection, prepared)

    def deconstruct(self) -> Any:
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.JSONField", args, kwargs


def _changed(rows: Any, change: Callable[[str], str]) -> Any:
    if isinstance(rows, dict):
        return _changed_row(rows, change)
    if not isinstance(rows, list):
        return rows
    return [_changed_row(row, change) if isinstance(row, dict) else row for row in rows]


def _changed_row(row: dict[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    return {
        name: change(value) if name in SENTENCES and isinstance(value, str) else value
        for name, value in row.items()
    }


class Shown(str):
    """A sentence in the language of a page. `pieces`: its text cut at its moments, `[text, ISO, English, text, …]`."""

    pieces: Sequence[str] = ()


def shown(text: str) -> str:
    """The sentence in the language of the page that is made. Words of people and of hosts stay as they are."""
    marked = texts.in_language(text, translation, _marked)
    if _MARK not in marked:
        return marked
    pieces = marked.split(_MARK)
    found = Shown("".join(piece for number, piece in enumerate(pieces) if number % 3 != 1))
    found.pieces = pieces
    return found


def _marked(at: str, english: str) -> str:
    return f"{_MARK}{at}{_MARK}{english}{_MARK}"
