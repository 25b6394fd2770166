"""The status of each host, and its history: one line for each thing that happened to it."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.db.models import Count, QuerySet

from agents.infra.text import clean_text
from agents.infra.texts import said
from agents.models import Host, HostEvent, HostStatus

DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)
TRAINYARD = "trainyard"
# Lines that are kept of one host. Its page shows fewer.
ALWAYS_KEPT, MAX_KEPT = 100, 1_000
MAX_A_MINUTE = 60
MAX_DELETED_AT_ONCE = 10_000
# The ORM cannot express this lock.
_LOCK_STATUSES = f"SELECT id FROM {Host._meta.db_table} WHERE id = ANY(%s) ORDER BY id FOR KEY SHARE"


def record(host_id: int, kind: str, text: str, actor: str, now: datetime, *, limited: bool = True) -> None:
    """Write one line of a host's history.

    A line about what a person did is always written. Of what a host brings about by itself, MAX_A_MINUTE lines are
    written in a minute: no host can fill the table. A line with `limited=False` is always written and does not count
    towards that limit, because other code relies on it: changes of status are such lines.
    """
    if actor == TRAINYARD and limited:
        recent = HostEvent.objects.filter(host_id=host_id, actor=TRAINYARD, limited=True, at__gt=now - MINUTE)
        left = MAX_A_MINUTE - recent.count()
        if left <= 0:
            return
        if left == 1:
            kind, text = "more", said("More happened in this minute than is written down.")
    HostEvent.objects.create(
        host_id=host_id, at=now, kind=kind, text=clean_text(text), actor=actor[:150], limited=limited
    )


def record_once_a_day(host_id: int, kind: str, text: str, actor: str, now: datetime) -> None:
    """Write a line of a kind that a host can cause as often as it likes, at most once a day."""
    if not HostEvent.objects.filter(host_id=host_id, kind=kind, at__gt=now - DAY).exists():
        record(host_id, kind, text, actor, now)


def prune(before: datetime) -> int:
    """Delete the lines from before this moment, host by host. Returns how many lines were deleted.

    The newest ALWAYS_KEPT lines of each host stay, whatever their age. Of each host at most MAX_KEPT lines are kept,
    so that a flood of lines does not grow without end. What people did and what a host brings about are counted apart:
    no host can push out what an admin did.
    """
    people = HostEvent.objects.exclude(actor=TRAINYARD)
    return _prune(people, before) + _prune(HostEvent.objects.filter(actor=TRAINYARD), before)


def _prune(lines: QuerySet[HostEvent], before: datetime) -> int:
    gone = 0
    crowded = lines.order_by().values("host").annotate(n=Count("pk")).filter(n__gt=ALWAYS_KEPT)
    for host_id in crowded.values_list("host", flat=True):
        of_host = lines.filter(host_id=host_id).order_by("-at", "-id")
        last = of_host[ALWAYS_KEPT - 1 : ALWAYS_KEPT].values_list("at", flat=True)[0]
        gone += of_host.filter(at__lt=min(before, last)).delete()[0]
        too_many = of_host[MAX_KEPT : MAX_KEPT + MAX_DELETED_AT_ONCE].values_list("pk", flat=True)
        gone += HostEvent.objects.filter(pk__in=list(too_many)).delete()[0]
    return gone


@transaction.atomic
def set_status(host_id: int, status: HostStatus, error: str, now: datetime, actor: str = TRAINYARD) -> bool:
    """Write a host's status and its last error; returns True, and writes a line of history, if the status changed.

    A change is never dated before the change that it follows: a check that began before the host became unreachable
    may find it reachable again.
    """
    error = clean_text(error)
    row = Host.every.select_for_update().filter(pk=host_id)  # waits while `lock_statuses` holds it
    before = row.values_list("status", "status_since", "retired_at").first()
    if before is None:
        return False
    old, since, retired_at = before
    if old != status and retired_at is None:
        at = max(now, since)
        Host.every.filter(pk=host_id).update(status=status, status_since=at, last_error=error)
        record(host_id, status.value, error or status.label, actor, at, limited=False)
        return True
    Host.every.filter(pk=host_id).exclude(last_error=error).update(last_error=error)
    return False


def lock_statuses(host_ids: Collection[int]) -> None:
    """Keep the statuses of these hosts as they are until this transaction is over.

    All other writes to the rows go on, above all those of leases and marks: this is the lock of a row's key (FOR KEY
    SHARE, which a foreign key takes too), and only FOR UPDATE waits for it. On SQLite there is one writer at a time
    anyway.
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(_LOCK_STATUSES, [sorted(host_ids)])
