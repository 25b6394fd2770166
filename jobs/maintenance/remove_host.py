"""Taking a host out of service for good. The caller has asked whether the person may do it."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from agents.infra.refusals import Refused
from agents.infra.texts import said, said_of
from agents.models import Host, HostEvent, HostStatus
from jobs.host_sync import lost_hosts
from jobs.maintenance.enrol_host import audited
from jobs.models import Run
from jobs.projects import audit
from jobs.scheduling import pass_lock
from jobs.wake import announce, hints


def remove_host(host: Host, actor: str, now: datetime) -> None:
    """Retire the host. Raises Refused while a run holds anything there, or while the host, which answers, still has
    log bytes, metrics or recordings that were not fetched. Doing it again changes nothing."""
    with transaction.atomic():
        pass_lock.lock_pass()  # nothing is placed on it meanwhile
        row = Host.every.select_for_update(no_key=True).get(pk=host.pk)
        rows = [*row.logins.filter(retired_at=None).order_by("pk"), row]
        holding = Run.objects.filter(host__in=rows, released_at=None).count()
        if holding:
            why = said_of(
                holding,
                "{number} run holds it. Cancel their jobs, or wait until they are over.",
                "{number} runs hold it. Cancel their jobs, or wait until they are over.",
            )
            raise Refused("host", why)
        answering = [each for each in rows if each.status == HostStatus.UP]
        lost_hosts.refuse_unfetched(answering, "host")
        for each in rows:
            _retire(each, actor, now)


def _retire(row: Host, actor: str, now: datetime) -> None:
    lost_hosts.give_up(row.pk, f"The host {row.name} was removed before these bytes were fetched.", now)
    if Host.every.filter(pk=row.pk, retired_at=None).update(retired_at=now):
        HostEvent.objects.create(host=row, at=now, kind="retired", text=said("Removed."), actor=actor[:150])
        audit.record(actor, "host.remove", "host", row.name, audited(row), None, now)
    hints.hosts([row.pk])
    announce.hints(["hosts", f"host:{row.pk}"])
