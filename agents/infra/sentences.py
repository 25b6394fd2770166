"""Columns of sentences that pages show in the language of their reader (rules/texts.py).

In the database they are text and JSON like any other, so there is nothing to migrate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import models

from agents.infra import texts


class SentenceField(models.TextField):  # type: ignore[type-arg]
    """One sentence."""

    def from_db_value(self, value: str | None, *_: object) -> str | None:
        return None if value is None else texts.read(value)

    def get_prep_value(self, value: Any) -> Any:
        return texts.stored(value) if isinstance(value, str) else super().get_prep_value(value)

    def deconstruct(self) -> Any:
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.TextField", args, kwargs


class FlagsField(models.JSONField):
    """`[{flag, since, text}]`, whose texts are sentences."""

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return _with_texts(super().from_db_value(value, expression, connection), texts.read)

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        return super().get_db_prep_value(_with_texts(value, texts.stored), connection, prepared)

    def deconstruct(self) -> Any:
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.JSONField", args, kwargs


def _with_texts(flags: Any, change: Callable[[str], str]) -> Any:
    if not isinstance(flags, list):
        return flags
    return [{**flag, "text": change(flag["text"])} if "text" in flag else flag for flag in flags]
