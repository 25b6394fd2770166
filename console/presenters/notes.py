"""The notes above every page: what a person has to know whatever they are doing, as long as it is true."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone

from agents import clock_keeper, time_doubt
from agents.hosts import recovery
from agents.infra.sentences import shown
from agents.infra.sql import SelectStatement, read_ahead
from agents.models import Host
from agents.ssh.host_keys import fingerprint
from console.auth import access
from jobs.logs import reader

# So many changed host keys are shown; there is a link to the rest.
MOST_KEYS = 3
_OFFERED = SelectStatement(lambda: Host.objects.exclude(offered_key="").order_by().values_list("pk")[:1])


@dataclass(frozen=True, slots=True)
class ChangedKey:
    """A machine that shows another host key than the accepted one. `offered_at`: the jump host that shows it."""

    host_id: int
    name: str
    url: str
    pinned: str
    offered: str
    offered_at: str
    accepted_by: str


@dataclass(frozen=True, slots=True)
class Notes:
    keys: tuple[ChangedKey, ...]
    more_keys: int
    may_accept: bool
    logs_paused: bool
    observing: bool
    sees_recovery: bool
    jumps: tuple[str, ...]
    # Why nothing is deleted by its age now: disks fill as long as it lasts.
    doubt: str


def notes(user: User) -> Notes:
    """Return the notes of this person. Makes a constant number of queries, and none about hosts of others."""
    now, is_admin = timezone.now(), access.is_deployment_admin(user)
    reads: dict[SelectStatement, dict[str, Any]] = {_OFFERED: {}, recovery.UNCONFIRMED: {}}
    if is_admin:
        reads[clock_keeper.RECENT_JUMPS] = clock_keeper.of_recent_jumps(now)
    with read_ahead(reads):
        return _notes(user, is_admin, now)


def _notes(user: User, is_admin: bool, now: datetime) -> Notes:
    keys = changed_keys(user)
    return Notes(
        keys=tuple(keys[:MOST_KEYS]),
        more_keys=max(len(keys) - MOST_KEYS, 0),
        may_accept=bool(keys) and access.can(user, "manage", Host),
        logs_paused=reader.logs_paused(),
        observing=recovery.in_recovery_mode(),
        sees_recovery=is_admin,
        jumps=tuple(_jumps(now)) if is_admin else (),
        doubt=shown(time_doubt.told(now)) if is_admin else "",
    )


def changed_keys(user: User) -> list[ChangedKey]:
    """Return the machines of this person whose host key has changed, by name. Mostly none has an offered key."""
    if not _OFFERED():
        return []
    columns = ("pk", "name", "pinned_key", "offered_key", "offered_at", "jump_keys", "key_accepted_by")
    rows = access.visible(user, Host.objects.exclude(offered_key="").order_by("name")).only(*columns)
    return [
        ChangedKey(
            host_id=host.pk,
            name=host.name,
            url=reverse("host", args=[host.pk]),
            pinned=fingerprint(pinned),
            offered=fingerprint(host.offered_key),
            offered_at=host.offered_at,
            accepted_by=host.key_accepted_by,
        )
        for host in rows
        if (pinned := replaced_key(host))
    ]


def replaced_key(host: Host) -> str:
    """Return the pinned key that the offered key would replace: the jump host's if that offered it, else the host's."""
    return str(host.jump_keys.get(host.offered_at, "")) if host.offered_at else host.pinned_key


def _jumps(now: datetime) -> list[str]:
    return [clock_keeper.text_of(jump) for jump in clock_keeper.recent_jumps(now)]
