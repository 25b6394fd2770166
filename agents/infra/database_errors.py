"""How a database that is away shows itself: the same request may succeed later, and nothing is wrong with it."""

from __future__ import annotations

from django.db import InterfaceError, InternalError, OperationalError

# The last one is a connection that the server gave up for dead in the middle of a transaction.
DATABASE_UNAVAILABLE = (OperationalError, InterfaceError, InternalError)
