"""Changing how a host is reached, and its location. The caller has asked whether the person may do it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from agents.hosts import adding, host_history, misbehaviour, moving
from agents.hosts.moving import Tried, Way
from agents.infra import database_pool
from agents.infra.places import AllTaken, Places
from agents.infra.refusals import Conflict, Refused, Unavailable
from agents.infra.texts import said, said_of
from agents.models import Host, HostStatus
from agents.ssh.targets import explicit_jumps
from jobs.host_sync import lost_hosts
from jobs.maintenance import logins
from jobs.maintenance.enrol_host import audited
from jobs.models import LoginTemplate, Project, Run
from jobs.projects import audit
from jobs.scheduling import pass_lock
from jobs.wake import announce, hints

# A host of such a status is in no trouble that a new way could end.
WELL = (HostStatus.UP, HostStatus.CHECKING, HostStatus.UNUSABLE)

# Those who wait for a host at the end of a new way, by person. Each holds a thread.
tries = Places(4)


@dataclass(frozen=True, slots=True)
class Place:
    """What an admin may change of a host."""

    way: Way
    location: str

    @classmethod
    def of(cls, host: Host) -> Place:
        return cls(Way.of(host), host.location.name)


def edit_host(
    host: Host, wanted: Place, seen: Place, new_keys: Collection[str], actor: str, now: datetime
) -> bool:
    """Change how the host is reached, after the new way was tried. Returns whether anything is different.

    `seen`: what the person saw before; somebody may have changed it since. `new_keys`: fingerprints of keys of jump
    hosts that the person accepts. Nothing runs in a transaction while the host is dialled. Raises Refused; Unavailable
    where too many do so at this moment.
    """
    way = wanted.way
    adding.check_place(way.address, way.port, way.user, way.jump)
    row = Host.objects.select_related("location").get(pk=host.pk)
    if row.machine_id is not None:
        raise Refused(
            "address", said("This is a login of {host}. Change its machine instead.", host=row.name)
        )
    _refuse_changed(row, seen)
    if wanted == seen:
        return False
    tried = None
    if way != seen.way and row.pinned_key:
        _refuse_held(row, way)
        tried = _tried(row, way, new_keys, actor)
    with transaction.atomic():
        pass_lock.lock_pass()  # nothing is placed on it meanwhile
        locked = Host.objects.select_for_update(no_key=True, of=("self",)).select_related("location")
        now_row = locked.filter(pk=row.pk).first()
        if now_row is None or now_row.pinned_key != row.pinned_key:
            raise _conflict(row)
        _refuse_changed(now_row, seen)
        _refuse_held(now_row, way)
        _refuse_other_machine(now_row, tried)
        _write(now_row, wanted, tried, actor, now)
    return True


def _tried(row: Host, way: Way, new_keys: Collection[str], actor: str) -> Tried:
    database_pool.give_back()
    try:
        with tries.place(actor):
            return moving.try_way(row, way, new_keys)
    except AllTaken:
        raise Unavailable(
            said("Several ways to hosts are being tried at the moment. Try again in a moment.")
        ) from None


def _refuse_changed(row: Host, seen: Place) -> None:
    if Place.of(row) != seen:
        raise _conflict(row)


def _conflict(row: Host) -> Conflict:
    return Conflict(
        "host", said("{host} was changed meanwhile. Nothing was done. Look at it again.", host=row.name)
    )


def _refuse_held(row: Host, way: Way) -> None:
    """A run lies in the home directory of its login: with another login it would not be found again."""
    if way.user == row.user:
        return
    own = Run.objects.filter(host=row)
    held = own.filter(released_at=None).count()
    if held:
        raise Refused(
            "user",
            said_of(
                held,
                "{number} run belongs to the login {login}. Cancel its job, or wait until it is over.",
                "{number} runs belong to the login {login}. Cancel their jobs, or wait until they are over.",
                login=row.user,
            ),
        )
    lost_hosts.refuse_unfetched([row], "user")
    _refuse_login_of_project(row, way.user)


def _refuse_login_of_project(row: Host, user: str) -> None:
    template = LoginTemplate.objects.filter(host=row).values_list("template", flat=True).first() or ""
    named = {logins.user_name(template, project) for project in Project.objects.all()} if template else set()
    if user in named or Host.every.filter(machine=row, user=user).exists():
        raise Refused("user", said("{login} is the login of a project on this machine.", login=user))


def _refuse_other_machine(row: Host, tried: Tried | None) -> None:
    """What runs on a machine would be lost if another one with the same key took its place."""
    if tried is None or tried.same:
        return
    held = Run.objects.filter(host__in=[row, *row.logins.all()], released_at=None).count()
    if held:
        raise Refused(
            "address",
            said_of(
                held,
                "Nothing was changed. The key is the accepted one, but this is not the machine with the {number} run "
                "of {host}: its boot and its GPUs are others. Machines made from one image share keys.",
                "Nothing was changed. The key is the accepted one, but this is not the machine with the {number} runs "
                "of {host}: its boot and its GPUs are others. Machines made from one image share keys.",
                host=row.name,
            ),
        )


def _write(row: Host, wanted: Place, tried: Tried | None, actor: str, now: datetime) -> None:
    before, way = audited(row), wanted.way
    moved = way != Way.of(row)
    row.address, row.port, row.user, row.jump = way.address, way.port, way.user, way.jump
    row.location = adding.location_named(wanted.location)
    shared: dict[str, object] = {"address": row.address, "port": row.port, "location": row.location}
    if moved:
        keys = tried.jump_keys if tried else row.jump_keys
        shared |= {"jump_keys": dict(keys), "offered_key": "", "offered_at": "", "due_at": now}
    own = {**shared, "user": row.user, "jump": row.jump}
    Host.objects.filter(pk=row.pk).update(**own)
    of_projects = row.logins.filter(retired_at=None)
    of_projects.update(**shared, jump=explicit_jumps(row.jump, row.user))
    rows = [row.pk, *of_projects.values_list("pk", flat=True)]
    after = audited(row)
    audit.record(actor, "host.edit", "host", row.name, before, after, now)
    host_history.record(row.pk, "edited", _changed_text(before, after), actor, now)
    if moved:
        _check_again(row, rows, tried, now)
    hints.schedule()
    hints.hosts(rows)
    announce.hints(["hosts", *(f"host:{each}" for each in rows)])


def _check_again(row: Host, rows: Collection[int], tried: Tried | None, now: datetime) -> None:
    """The host is dialled at once by its new way, whatever was wrong with the old one.

    Nothing is placed on another machine before it was checked: until its link is made, orders go to the old one.
    """
    misbehaviour.reopen(row.pk, now)
    if tried is not None and (row.status not in WELL or not tried.same):
        host_history.set_status(row.pk, HostStatus.CHECKING, "", now)
    for each in rows:
        hints.enrol(each)


def _changed_text(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return ", ".join(f"{name}: {before.get(name, '–')} → {after.get(name, '–')}" for name in names)
