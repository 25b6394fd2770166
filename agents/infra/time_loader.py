"""Times from PostgreSQL, read by Python's own C. Django's reading of them takes twenty times as long, and a page of a
wide job has thousands of them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.db.backends.postgresql.psycopg_any import BaseTzLoader, get_adapters_template

# How a time of this era ends in a session whose time zone is UTC.
IN_UTC = b"+00"


class TimeLoader(BaseTzLoader):  # type: ignore[misc]  # the stubs do not have it
    """What `datetime` cannot read is left to Django, which says why."""

    timezone = UTC

    def load(self, data: Any) -> datetime:
        text = bytes(data)
        if text.endswith(IN_UTC):
            try:
                return datetime.fromisoformat(text.decode())
            except ValueError:
                pass
        return super().load(data)  # type: ignore[no-any-return]


def use() -> None:
    """Read the times of all connections so that this process makes from now on."""
    get_adapters_template(True, UTC).register_loader("timestamptz", TimeLoader)
