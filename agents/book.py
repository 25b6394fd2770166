"""The book of hosts: what state each is in, and one line for each thing that happened to it."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Count

from agents.models import Host, HostEvent, HostStatus
from agents.words import clean

DAY = timedelta(days=1)
# Of one host. The page shows fewer.
ALWAYS_KEPT, MOST_KEPT = 100, 1_000
AT_ONCE = 10_000


def note(host_id: int, kind: str, text: str, actor: str, now: datetime) -> None:
    HostEvent.objects.create(host_id=host_id, at=now, kind=kind, text=clean(text), actor=actor[:150])


def note_daily(host_id: int, kind: str, text: str, actor: str, now: datetime) -> None:
    """What a host can bring about as often as it likes is told once a day."""
    if not HostEvent.objects.filter(host_id=host_id, kind=kind, at__gt=now - DAY).exists():
        note(host_id, kind, text, actor, now)


def prune(before: datetime) -> int:
    """Forget what is older, host by host. The newest stay whatever their age, and a flood does not grow without end."""
    gone = 0
    crowded = HostEvent.objects.order_by().values("host").annotate(n=Count("pk")).filter(n__gt=ALWAYS_KEPT)
    for host_id in crowded.values_list("host", flat=True):
        of_host = HostEvent.objects.filter(host_id=host_id).order_by("-at", "-id")
        old = of_host[ALWAYS_KEPT : ALWAYS_KEPT + AT_ONCE].values_list("pk", "at")
        doomed = [pk for place, (pk, at) in enumerate(old) if at < before or place >= MOST_KEPT - ALWAYS_KEPT]
        gone += HostEvent.objects.filter(pk__in=doomed).delete()[0]
    return gone


@transaction.atomic
def set_status(host_id: int, status: HostStatus, error: str, now: datetime, actor: str = "trainyard") -> bool:
    """Write a host's status and its last error; True, with an event, when the status is another one than before."""
    error = clean(error)
    changed = (
        Host.every.filter(pk=host_id, retired_at=None)
        .exclude(status=status)
        .update(status=status, status_since=now, last_error=error)
    )
    if changed:
        note(host_id, status.value, error or status.label, actor, now)
        return True
    Host.every.filter(pk=host_id).exclude(last_error=error).update(last_error=error)
    return False
