"""Keeps open pages up to date: at each hint, and once a second, it is checked whether a part of a page has changed.

A part is rendered once for all sockets that show it to people with the same rights (live/fragments.py), and sent whole;
of a part with many pieces, those that have changed are sent to sockets that were sent the rest before. A socket that
joins gets a whole part that was checked after it joined, so a page never goes back to an older state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Hashable
from functools import partial
from typing import Any
from urllib.parse import parse_qs

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import Http404
from django.utils import translation

from agents.infra.texts import said
from console.consumers.socket_lifecycle import GONE, Closed, Receive, Send, Socket
from console.live import fragments
from console.live.fragments import Form, Fragment, Message, RightsChanged, Source, Version
from console.parts import registry
from console.parts.part import Part, Place, Seen, place_of
from console.presenters import live


class PartsSocket(Socket):
    """A socket that keeps the parts of one page up to date."""

    form: Form
    place: Place
    parts: tuple[Part, ...]

    def __init__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        super().__init__(scope, receive, send)
        self.query = scope.get("query_string", b"").decode("latin-1")
        self._followers: list[_Follower] = []

    def authorize(self, user: User) -> None:
        self._followers = [
            _Follower(self, part, seen) for part, seen in zip(self.parts, self.recheck(user), strict=True)
        ]

    def recheck(self, user: User) -> list[Seen]:
        """Check the right to be here. Returns what the person may see of each part now."""
        return [part.see(user, self.place) for part in self.parts]

    def recheck_key(self) -> Hashable:
        return tuple(part.name for part in self.parts), self.place

    def rechecked(self, answer: Any) -> None:
        for follower, seen in zip(self._followers, answer, strict=True):
            follower.may_see(seen)

    def work(self) -> list[Coroutine[Any, Any, None]]:
        return [follower.follow() for follower in self._followers]

    async def send_message(self, message: Message) -> None:
        # A client that does not keep up waits, and gets the newest message then.
        if self._write is None or not self._write(message.frame):
            await self._send({"type": "websocket.send", "text": message.text})

    async def look_again(self, part: Part) -> Seen:
        def look(user: User) -> Seen:
            return part.see(user, self.place)

        seen: Seen = await self._check(look)
        return seen


class _Follower:
    """Sends one part through a socket whenever the part has changed."""

    def __init__(self, socket: PartsSocket, part: Part, seen: Seen) -> None:
        self._socket = socket
        self._part = part
        self._seen = seen
        # What is sent for these rights is sent within this. It is over when they change.
        self._same_rights: asyncio.Timeout | None = None

    def may_see(self, seen: Seen) -> None:
        changed = seen.rights != self._seen.rights
        self._seen = seen
        if changed and self._same_rights is not None:
            self._same_rights.reschedule(0)
            self._same_rights = None

    async def follow(self) -> None:
        """Follow the part; when rights have changed, follow the one for the rights that this person has now."""
        while True:
            try:
                async with (
                    asyncio.timeout(None) as self._same_rights,
                    fragments.follow(self._source()) as fragment,
                ):
                    await self._send_each(fragment, fragment.join())
            except RightsChanged:
                self._same_rights = None
                # Not a shared answer: an old one would lead back to the same fragment.
                self._seen = await self._socket.look_again(self._part)
            except TimeoutError:
                if self._same_rights is not None:
                    raise
            finally:
                self._same_rights = None

    def _source(self) -> Source:
        part, place, form = self._part, self._socket.place, self._socket.form
        user, rights = self._seen.user, self._seen.rights
        return Source(
            (part.name, part.same_at(place), form, self._socket.language, rights),
            self._seen.topics,
            partial(part.stamp, user, place),
            partial(self._rendered, user, rights),
            form,
        )

    def _rendered(self, user: User, rights: Hashable) -> str:
        """The part for all people with these rights. It is rendered as this person sees it, who may have other rights
        by now. Raises RightsChanged then, and when the person may not see it at all.
        """
        place = self._socket.place
        try:
            with translation.override(self._socket.language):
                html = self._part.render(user, place, rights)
            changed = self._part.see(user, place).rights != rights
        except (Http404, PermissionDenied, live.NotForAll):
            changed = True
        if changed:
            raise RightsChanged
        return html

    async def _send_each(self, fragment: Fragment, look: int) -> None:
        shown: Version | None = None
        while True:
            version = await fragment.newer_than(shown, look)
            if not version.whole.text:
                raise Closed(GONE, said("It is not here any more."))
            await self._socket.send_message(version.since(shown))
            shown = version


class LivePage(PartsSocket):
    """The socket of a page: `at` is the page's path and query. It sends changed parts as HTML."""

    form = Form.HTML

    def authorize(self, user: User) -> None:
        self.place = place_of(parse_qs(self.query).get("at", [""])[0])
        self.parts = registry.parts_of(self.place)
        super().authorize(user)


class _OldAddress(PartsSocket):
    """An address of before version 0.4, which scripts of people may follow: the parts of one page, as JSON."""

    form = Form.JSON
    has_beats = False
    page: str

    def __init__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        super().__init__(scope, receive, send)
        self.place = Place.of(self.page, self.arguments, self.query)
        self.parts = registry.OLD_PAGES[self.page]


class JobSocket(_OldAddress):
    page = "job"


class JobListSocket(_OldAddress):
    page = "jobs"


class HostListSocket(_OldAddress):
    page = "hosts"


class HostSocket(_OldAddress):
    page = "host"
