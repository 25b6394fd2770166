"""Arrays as PostgreSQL reads them."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

# What needs no quotes in an array, and is not its word for nothing.
_PLAIN = re.compile(r"(?!null\b)[a-z0-9_-]+(?:,(?!null\b)[a-z0-9_-]+)*", re.IGNORECASE)


def written_array(values: Collection[Any]) -> str | list[Any]:
    """An array as PostgreSQL writes it. The driver looks at each of a thousand values for what has to be quoted."""
    kinds, text = set(map(type, values)), ",".join(map(str, values))
    plain = kinds <= {int} or (kinds == {str} and all(values) and _PLAIN.fullmatch(text))
    return f"{{{text}}}" if plain and text.count(",") == max(len(values) - 1, 0) else list(values)
