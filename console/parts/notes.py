"""The notes above every page. They come and go while the page is open."""

from __future__ import annotations

from collections.abc import Hashable

from django.contrib.auth.models import User

from console.auth import access
from console.parts.part import Part, Place, Seen
from console.presenters import live


def _see(user: User, place: Place) -> Seen:
    """People with equal roles in equal projects see the same hosts."""
    return Seen(user, access.rights_key(user), ("hosts",))


def _stamp(user: User, place: Place) -> str:
    return live.notes_stamp(user)


def _notes(user: User, place: Place, rights: Hashable) -> str:
    return live.notes_live(user)


def _everywhere(place: Place) -> Hashable:
    return None


NOTES = Part("notes", _see, _stamp, _notes, _everywhere)
