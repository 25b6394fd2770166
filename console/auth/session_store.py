"""Sessions in the database, each with its owner in a column, and where and when it was used (settings.SESSION_ENGINE).

Django's own rows keep the owner inside the encoded data, so all sessions of one person could not be found. They keep
the key of a session as the browser has it: whoever reads a backup could be anybody. Here a row has a digest of the key.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, cast

from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends import db
from django.utils import timezone

from agents.infra.sql import Parameter, PartialModel, SelectStatement
from console.auth.tokens import digest
from console.models import Session

# People read when a session was last used, so one write in this time is enough.
SEEN_EVERY = timedelta(minutes=5)
# Inside the data of a session: how it began. A session gets a new key and a new row at each login.
BEGUN = "begun"


class Way(StrEnum):
    """How a person has shown who they are."""

    PASSWORD = "password"
    LINK = "link"
    PASSKEY = "passkey"
    OIDC = "oidc"


# As many letters as Django's column has. The login of a shell is the whole digest (jobs.models.ShellSession).
KEY_LETTERS = 40
# Every page asks for it, and every check of a socket.
_SESSION = PartialModel(Session)
_valid = SelectStatement(
    lambda: (
        Session.objects.filter(pk=Parameter("key"), expire_date__gt=Parameter("now"))
        .order_by()
        .values_list(*_SESSION.names)
    )
)


def stored_key(key: str) -> str:
    """How the key of a session, which the browser has, stands in the database: as much of its digest as fits."""
    return digest(key)[:KEY_LETTERS]


class SessionStore(db.SessionStore):
    row: Session | None = None

    @classmethod
    def get_model_class(cls) -> type[Session]:
        return Session

    @classmethod
    def of_row(cls, row: Session) -> SessionStore:
        """What a row has stored. It cannot be saved: only the browser has the key."""
        store = cls()
        if row.expire_date > timezone.now():
            store.update(store.decode(row.session_data))
        return store

    def load(self) -> dict[str, Any]:
        self.row = self._row()
        if self.row is None:
            self._session_key = None
            return {}
        return self.decode(self.row.session_data)

    def _row(self) -> Session | None:
        stored = stored_key(self.session_key or "")
        rows = _valid(key=stored, now=timezone.now())
        return _SESSION.build(rows[0]) if rows else None

    def exists(self, session_key: str) -> bool:
        return super().exists(stored_key(session_key))

    def delete(self, session_key: str | None = None) -> None:
        if key := session_key or self.session_key:
            super().delete(stored_key(key))

    def create_model_instance(self, data: dict[str, Any]) -> Session:
        row = cast(Session, super().create_model_instance(data))
        row.session_key = stored_key(row.session_key)
        row.user_id = int(data[SESSION_KEY]) if SESSION_KEY in data else None
        begun = data.get(BEGUN, {})
        row.seen_at = timezone.now()
        row.made_at = datetime.fromisoformat(begun["at"]) if begun else None
        row.agent, row.way = begun.get("agent", ""), begun.get("way", "")
        # The row is written whole. What only the row knows stays.
        row.address = self.row.address if self.row and self.row.address else begun.get("address", "")
        self.row = row
        return row

    def note_seen(self, address: str, now: datetime) -> None:
        """Write down that the session was used just now from this address, unless that was written lately."""
        row = self.row
        if row is None or row.user_id is None or row.session_key != stored_key(self.session_key or ""):
            return
        is_fresh = row.seen_at is not None and abs(now - row.seen_at) < SEEN_EVERY
        if is_fresh and row.address in (address, ""):
            return
        Session.objects.filter(pk=row.pk).update(seen_at=now, address=address)
