"""Reads the JSON body of a request: which fields it may have, and a reader for each kind of value.

A field that the address does not know is refused, because a field that is sent and not read would be lost silently.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rest_framework.request import Request

from console.api.errors import BadRequest
from console.api.times import parse_time

# How much of an unknown field's name an error message repeats.
MAX_NAME = 60


class RequestBody:
    """The JSON object of a request, which may have the fields of a type, or the named ones, and no others."""

    def __init__(self, request: Request, *fields: str | type) -> None:
        names = [
            name for each in fields for name in ([each] if isinstance(each, str) else each.__annotations__)
        ]
        if not isinstance(request.data, dict):
            raise BadRequest("", "The body must be a JSON object.")
        self._fields: dict[str, Any] = dict(request.data)
        unknown = sorted(str(name)[:MAX_NAME] for name in self._fields.keys() - set(names))
        if unknown:
            known = f"The fields are {', '.join(names)}." if names else "The body must be empty."
            raise BadRequest(unknown[0], f"{unknown[0]} is not a field of this. {known}")

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def get(self, name: str, default: Any = None) -> Any:
        """The value as it was sent, of whatever type."""
        return self._fields.get(name, default)

    def text(self, name: str, default: str | None = None, max_length: int | None = None) -> str:
        """A text. The field is required when there is no default."""
        value = self._fields.get(name, default)
        limit = "" if max_length is None else f" of at most {max_length} characters"
        if (
            not isinstance(value, str)
            or "\0" in value
            or (max_length is not None and len(value) > max_length)
        ):
            raise BadRequest(name, f"{name} must be a text{limit}.")
        return value

    def boolean(self, name: str, default: bool = False) -> bool:
        value = self._fields.get(name, default)
        if not isinstance(value, bool):
            raise BadRequest(name, f"{name} must be true or false.")
        return value

    def number(self, name: str, range_text: str) -> float:
        """A number. `range_text` tells in the message which numbers are possible; the caller checks the range."""
        value = self._fields.get(name)
        if not isinstance(value, bool) and isinstance(value, int | float):
            try:
                return float(value)
            except OverflowError:
                pass
        raise BadRequest(name, f"{name} must be a number {range_text}.")

    def time(self, name: str) -> datetime | None:
        """A time, or None when the field is absent or null."""
        value = self._fields.get(name)
        found = parse_time(value)
        if found is None and value is not None:
            raise BadRequest(name, f"{name} must be a time such as 2026-11-21T18:00:00Z.")
        return found
