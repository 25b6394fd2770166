"""What a link found out about its host, written into the host's row by the dispatcher that holds the lease."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from agents.hosts import checklist, host_history, misbehaviour, offered_key, recovery
from agents.links.link import Hello
from agents.models import Host, HostStatus


@transaction.atomic
def record_greeting(host_id: int, token: int, hello: Hello, now: datetime) -> bool:
    """Record the runner's greeting. True if the control plane should decide again: the host is back, or was
    rebooted."""
    host = _host(host_id, token)
    if host is None:
        return False
    mark = recovery.check_mark(host, hello.mark, hello.seal, now)
    rebooted = bool(host.boot_id) and host.boot_id != hello.boot_id
    if rebooted:
        host_history.record(host_id, "rebooted", f"boot {hello.boot_id}", "trainyard", now)
    Host.every.filter(pk=host_id).update(
        seen_at=now,
        boot_id=hello.boot_id,
        clock_offset_s=hello.wall_offset_s,
        monotonic_offset_s=hello.monotonic_offset_s,
        monotonic_at=now,
        runner_sha=hello.sha,
        mark=mark,
        free_disk_mb=host.free_disk_mb if hello.free_mb is None else hello.free_mb,
    )
    key_back = offered_key.forget(host, now)
    return _set_status_after_greeting(host, now) or rebooted or key_back


@transaction.atomic
def record_failure(host_id: int, token: int, status: HostStatus, error: str, now: datetime) -> bool:
    """Record why the host cannot be used now. True if its status changed."""
    if _host(host_id, token) is None:
        return False
    return host_history.set_status(host_id, status, error, now)


@transaction.atomic
def record_misbehaviour(host_id: int, token: int, why: str, now: datetime) -> bool:
    """Record that the host was disconnected for what it sent. True if its status changed."""
    host = _host(host_id, token)
    return host is not None and misbehaviour.close(host, why, now)


def _host(host_id: int, token: int) -> Host | None:
    return Host.objects.select_for_update().filter(pk=host_id, lease_token=token).first()


def _set_status_after_greeting(host: Host, now: datetime) -> bool:
    """Set a usable host to UP. A host whose checklist is not known to be good is checked anew (enrolment).

    While a check is due, after a refused start perhaps, the checklist in the row describes the past: only the check
    ends the status CHECKING.
    """
    if host.status == HostStatus.CHECKING:
        return False
    if checklist.is_usable(host.checklist):
        return host_history.set_status(host.pk, HostStatus.UP, "", now)
    if host.status == HostStatus.UNUSABLE:
        return False
    Host.every.filter(pk=host.pk).update(due_at=now)
    return host_history.set_status(host.pk, HostStatus.CHECKING, "", now)
