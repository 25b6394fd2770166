"""The live parts of the pages of hosts."""

from __future__ import annotations

from collections.abc import Hashable

from django.contrib.auth.models import User

from agents.models import Host
from console.auth import access
from console.parts.part import Part, Place, Seen
from console.presenters import live
from console.presenters.hosts import host_list


def _see_host(user: User, place: Place) -> Seen:
    host_id = place.number("host_id")
    access.get_or_404(user, "see", Host.every.all(), pk=host_id)
    return Seen(user, access.rights_key(user), (f"host:{host_id}",))


def _stamp_of_host(user: User, place: Place) -> str:
    return live.host_stamp(place.number("host_id"))


def _host(user: User, place: Place, rights: Hashable) -> str:
    return live.host_live(user, place.number("host_id"))


def _see_list(user: User, place: Place) -> Seen:
    access.require(user, "see", Host)
    return Seen(user, host_list.rights(user), ("hosts",))


def _stamp_of_list(user: User, place: Place) -> str:
    return live.hosts_stamp(user, dict(place.query))


def _list(user: User, place: Place, rights: Hashable) -> str:
    return live.hosts_live(user, dict(place.query), rights)


def _see_gpus(user: User, place: Place) -> Seen:
    """Who holds a GPU is shown to people of the same project."""
    access.require(user, "see", Host)
    return Seen(user, access.rights_key(user), ("hosts",))


def _stamp_of_gpus(user: User, place: Place) -> str:
    return live.gpus_stamp(user)


def _gpus(user: User, place: Place, rights: Hashable) -> str:
    return live.gpus_live(user, dict(place.query))


def _stamp_of_load(user: User, place: Place) -> str:
    return live.host_load_stamp(place.number("host_id"))


def _load(user: User, place: Place, rights: Hashable) -> str:
    return live.host_load_live(user, place.number("host_id"))


def _see_keys(user: User, place: Place) -> Seen:
    access.require(user, "manage", Host)
    return Seen(user, access.rights_key(user), ("hosts",))


def _stamp_of_keys(user: User, place: Place) -> str:
    return live.host_keys_stamp(user)


def _keys(user: User, place: Place, rights: Hashable) -> str:
    return live.host_keys_live(user)


GPU_MAP = Part("gpus", _see_gpus, _stamp_of_gpus, _gpus)
HOST = Part("host", _see_host, _stamp_of_host, _host)
HOST_LOAD = Part("host-load", _see_host, _stamp_of_load, _load)
HOST_KEYS = Part("host-keys", _see_keys, _stamp_of_keys, _keys)
HOST_LIST = Part("hosts", _see_list, _stamp_of_list, _list)
