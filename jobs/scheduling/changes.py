"""Whether something has changed that pages say of capacity: by the newest rows of what is only ever added to.

A place that is taken or given back, a host that comes, goes or is closed, and what admins set: each adds a line of a
history, a claim or a usage row. What is left (a host that is found to have more memory) pages say a little later.
"""

from __future__ import annotations

from collections.abc import Hashable
from datetime import timedelta

from django.db import connection

from agents.infra.shared_answers import SharedAnswers
from agents.models import Gpu, Host, HostEvent
from jobs.models import AuditEntry, GpuClaim, Transition, Usage

# For so long an answer counts although nothing of this has changed.
LONGEST = timedelta(minutes=1)
_recent: SharedAnswers[None, Hashable] = SharedAnswers(timedelta(seconds=1), 1)
_TABLES = [model._meta.db_table for model in (Transition, Usage, HostEvent, GpuClaim, AuditEntry, Gpu, Host)]
_NEWEST = f"SELECT {', '.join(f'(SELECT max(id) FROM {table})' for table in _TABLES)}"


def stamp() -> Hashable:
    """Equal as long as nothing has changed, up to a second ago: a page asks several times. One query, of the ends of
    indexes.

    A transaction that took its numbers before another one, and ends after it, is missed: until LONGEST is over.
    """
    return _recent.get(None, _read)


def _read() -> Hashable:
    with connection.cursor() as cursor:
        cursor.execute(_NEWEST)
        return tuple(cursor.fetchone() or ())
