"""A part of a page: one template that the page, the answer to htmx and the page's socket render alike."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from django.contrib.auth.models import User
from django.http import Http404
from django.urls import resolve

# An address that is longer is none of ours.
MAX_ADDRESS = 4000
# A form sends each chosen replica, and an address that we make has all of them in one value.
SEVERAL = "replicas"


@dataclass(frozen=True, slots=True)
class Place:
    """A page as its address names it: the name in urls.py, the arguments, and the query."""

    name: str
    arguments: tuple[tuple[str, str], ...] = ()
    query: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, name: str, arguments: Mapping[str, object], query: str) -> Place:
        given = tuple(sorted((key, str(value)) for key, value in arguments.items()))
        pairs = parse_qsl(query)
        asked = dict(pairs)
        if SEVERAL in asked:
            asked[SEVERAL] = ",".join(value for key, value in pairs if key == SEVERAL)
        return cls(name, given, tuple(sorted(asked.items())))

    def text(self, name: str) -> str:
        return dict(self.arguments)[name]

    def number(self, name: str) -> int:
        return int(self.text(name))


@dataclass(frozen=True, slots=True)
class Seen:
    """What decides what a person, as they are now, sees of a part: people with equal rights are shown the same.
    `topics`: whose hints say that it may have changed.
    """

    user: User
    rights: Hashable
    topics: tuple[str, ...]


def _itself(place: Place) -> Hashable:
    return place


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a page, or several that always change together. All functions run in a thread with a database.

    `see` raises Http404 or PermissionDenied. `stamp` is a text that changes whenever the part changes; it must be
    cheap, because it is asked for each second. `render` makes the part for all people with these rights: elements with
    ids; an empty text where its object does not exist any more. `same_at`: equal for places where the part is the same.
    """

    name: str
    see: Callable[[User, Place], Seen]
    stamp: Callable[[User, Place], str]
    render: Callable[[User, Place, Hashable], str]
    same_at: Callable[[Place], Hashable] = _itself


def place_of(address: str) -> Place:
    """The page that has this path and query. Raises Http404 where there is none."""
    try:
        split = urlsplit(address)
    except ValueError:
        raise Http404 from None
    ours = split.path.startswith("/") and not (split.scheme or split.netloc)
    if len(address) > MAX_ADDRESS or not ours or "\0" in address:
        raise Http404
    found = resolve(split.path)
    if not found.url_name:
        raise Http404
    return Place.of(found.url_name, found.kwargs, split.query)
