"""The errors that mean that the database is unavailable. The request is not at fault: it may succeed later."""

from __future__ import annotations

from django.db import InterfaceError, InternalError, OperationalError

# InternalError: the server gave the connection up in the middle of a transaction.
DATABASE_UNAVAILABLE = (OperationalError, InterfaceError, InternalError)
