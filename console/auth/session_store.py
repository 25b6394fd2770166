"""Sessions in the database, each with its owner in a column (settings.SESSION_ENGINE).

Django's own rows keep the owner inside the encoded data, so all sessions of one person could not be found.
"""

from __future__ import annotations

from typing import Any, cast

from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends import db

from console.models import Session


class SessionStore(db.SessionStore):
    @classmethod
    def get_model_class(cls) -> type[Session]:
        return Session

    def create_model_instance(self, data: dict[str, Any]) -> Session:
        row = cast(Session, super().create_model_instance(data))
        row.user_id = int(data[SESSION_KEY]) if SESSION_KEY in data else None
        return row
