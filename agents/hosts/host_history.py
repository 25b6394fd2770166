"""The book of hosts: what state each is in, and one line for each thing that happened to it."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.db.models import Count

from agents.infra.text import clean_text
from agents.models import Host, HostEvent, HostStatus

DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)
TRAINYARD = "trainyard"
# Of one host. The page shows fewer.
ALWAYS_KEPT, MAX_KEPT = 100, 1_000
MAX_A_MINUTE = 60
AT_ONCE = 10_000
JOB_ENDED = "job_ended"
# Never left out, for others rely on them: as many as changes of status, and ends of jobs beside a silent host.
UNCOUNTED = frozenset({JOB_ENDED, *HostStatus.values})
# The ORM has no words for this lock.
_HOLD = f"SELECT id FROM {Host._meta.db_table} WHERE id = ANY(%s) ORDER BY id FOR KEY SHARE"


def add(host_id: int, kind: str, text: str, actor: str, now: datetime) -> None:
    """What a person does is always written, and every status; of what else a host brings about, so much in a minute."""
    if actor == TRAINYARD and kind not in UNCOUNTED:
        lately = HostEvent.objects.filter(host_id=host_id, actor=TRAINYARD, at__gt=now - MINUTE)
        room = MAX_A_MINUTE - lately.exclude(kind__in=UNCOUNTED).count()
        if room <= 0:
            return
        if room == 1:
            kind, text = "more", "More happened in this minute than is written down."
    HostEvent.objects.create(host_id=host_id, at=now, kind=kind, text=clean_text(text), actor=actor[:150])


def add_once_a_day(host_id: int, kind: str, text: str, actor: str, now: datetime) -> None:
    """What a host can bring about as often as it likes is told once a day."""
    if not HostEvent.objects.filter(host_id=host_id, kind=kind, at__gt=now - DAY).exists():
        add(host_id, kind, text, actor, now)


def prune(before: datetime) -> int:
    """Forget what is older, host by host. The newest stay whatever their age, and a flood does not grow without end."""
    gone = 0
    crowded = HostEvent.objects.order_by().values("host").annotate(n=Count("pk")).filter(n__gt=ALWAYS_KEPT)
    for host_id in crowded.values_list("host", flat=True):
        of_host = HostEvent.objects.filter(host_id=host_id).order_by("-at", "-id")
        last = of_host[ALWAYS_KEPT - 1 : ALWAYS_KEPT].values_list("at", flat=True)[0]
        gone += of_host.filter(at__lt=min(before, last)).delete()[0]
        too_many = of_host[MAX_KEPT : MAX_KEPT + AT_ONCE].values_list("pk", flat=True)
        gone += HostEvent.objects.filter(pk__in=list(too_many)).delete()[0]
    return gone


@transaction.atomic
def set_status(host_id: int, status: HostStatus, error: str, now: datetime, actor: str = TRAINYARD) -> bool:
    """Write a host's status and its last error; True, with an event, when the status is another one than before.

    Nothing is dated before what it follows: a check that began before the host fell silent may find it well again.
    """
    error = clean_text(error)
    row = Host.every.select_for_update().filter(pk=host_id)  # waits for whoever holds statuses
    before = row.values_list("status", "status_since", "retired_at").first()
    if before is None:
        return False
    old, since, retired_at = before
    if old != status and retired_at is None:
        at = max(now, since)
        Host.every.filter(pk=host_id).update(status=status, status_since=at, last_error=error)
        add(host_id, status.value, error or status.label, actor, at)
        return True
    Host.every.filter(pk=host_id).exclude(last_error=error).update(last_error=error)
    return False


def lock_statuses(host_ids: Collection[int]) -> None:
    """Until this transaction is over, nobody writes another status of these hosts.

    All else goes on, leases and marks above all: it is the lock of a row's key, that of which a foreign key makes use,
    and only FOR UPDATE waits for it. On SQLite whoever writes is alone anyway.
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(_HOLD, [sorted(host_ids)])
