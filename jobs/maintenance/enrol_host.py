"""Adding a host and accepting its key, with the audit. Pages, REST and command line call this, not agents/ directly."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db import transaction

from agents.hosts import adding, enrolment, misbehaviour
from agents.infra.refusals import Refused
from agents.models import Host
from jobs.projects import audit
from jobs.wake import hints


def add_host(
    name: str, address: str, port: int, user: str, location: str, jump: str, actor: str, now: datetime
) -> Host:
    """Store a new host, whose first check is due now. Raises Refused."""
    with transaction.atomic():
        host = adding.add_host(name, address, port, user, location, jump, actor, now)
        audit.record(actor, "host.add", "host", host.name, None, audited(host), now)
        return host


def accept_host_key(host: Host, expected: str, actor: str, now: datetime) -> None:
    """Pin the key that the host offers, if it is the expected one. Raises Refused."""
    with transaction.atomic():
        accepted = enrolment.accept_host_key(host.pk, expected, actor, now)
        before = {"machine": accepted.machine, "key": accepted.before} if accepted.before else None
        after = {"machine": accepted.machine, "key": accepted.after}
        audit.record(actor, "host.accept_key", "host", host.name, before, after, now)


def accept_host_keys(
    wanted: Sequence[tuple[Host, str]], actor: str, now: datetime
) -> tuple[list[Host], list[tuple[Host, str]]]:
    """Accept the keys of many hosts, each with its fingerprint as a person saw it; check those hosts.

    Returns the hosts whose key is accepted, and those that show another key by now, each with the reason.
    """
    accepted, refused = [], []
    for host, expected in wanted:
        try:
            accept_host_key(host, expected, actor, now)
        except Refused as why:
            refused.append((host, why.message))
        else:
            accepted.append(host)
    for host in accepted:
        hints.enrol(host.pk)
    return accepted, refused


def check_again(host: Host, actor: str, now: datetime) -> None:
    """Check the host once more. The check is due now, so the sweep starts it even if the hint is lost."""
    with transaction.atomic():
        Host.objects.filter(pk=host.pk).update(due_at=now)
        misbehaviour.reopen(host.pk, now)
        audit.record(actor, "host.check", "host", host.name, None, None, now)
    hints.enrol(host.pk)


def audited(host: Host) -> dict[str, str]:
    """How the host is reached and where it belongs."""
    jump = {"jump": host.jump} if host.jump else {}
    return {"login": f"{host.user}@{host.address}:{host.port}", "location": host.location.name, **jump}
