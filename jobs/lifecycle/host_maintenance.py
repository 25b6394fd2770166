"""A host's maintenance: its row, read with other queries, and why the host takes nothing new, as text.

The texts stand in wait reasons, in flags, and in the history of the jobs that have to leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agents.infra.sql import PartialModel
from agents.infra.texts import join, moment, said
from agents.models import Host
from jobs.models import HostMaintenance

_MAINTENANCE = PartialModel(HostMaintenance)
# What a statement reads of a host besides its own columns; the first is NULL for a host without a row.
COLUMNS = tuple(f"maintenance__{name}" for name in _MAINTENANCE.names)
_RELATION: Any = HostMaintenance._meta.get_field("host").remote_field
_OPEN = HostMaintenance()


def attach(host: Host, columns: Sequence[Any]) -> None:
    """Give the host its maintenance, as COLUMNS have read it: then `maintenance_of` needs no query."""
    _RELATION.set_cached_value(host, None if columns[0] is None else _MAINTENANCE.build(columns))


def maintenance_of(host: Host) -> HostMaintenance:
    """The host's row, or an open one that is not to be written. Without a query if the host was read with
    `select_related("maintenance")` or with COLUMNS."""
    try:
        return host.maintenance
    except HostMaintenance.DoesNotExist:
        return _OPEN


def closed_text(host: Host) -> str:
    """`gpu-03 is closed to new jobs by alice: new disk`"""
    maintenance = maintenance_of(host)
    person = maintenance.cordoned_by
    if maintenance.drain_at:
        return _draining(host.name, person, "", maintenance.cordon_message)
    if person:
        text = said("{host} is closed to new jobs by {person}", host=host.name, person=person)
    else:
        text = said("{host} is closed to new jobs", host=host.name)
    return _with_message(text, maintenance.cordon_message)


def draining_text(host: Host) -> str:
    """`gpu-03 is being drained by alice until 2026-11-21 18:00:00 UTC: new disk`; empty when it is not."""
    maintenance = maintenance_of(host)
    if maintenance.drain_at is None:
        return ""
    until = moment(maintenance.drain_until) if maintenance.drain_until else ""
    return _draining(host.name, maintenance.cordoned_by, until, maintenance.cordon_message)


def _draining(host: str, person: str, until: str, message: str) -> str:
    if person:
        text = said("{host} is being drained by {person}", host=host, person=person)
    else:
        text = said("{host} is being drained", host=host)
    if until:
        text = said("{draining} until {time}", draining=text, time=until)
    return _with_message(text, message)


def _with_message(text: str, message: str) -> str:
    return join(": ", [text, message]) if message else text
