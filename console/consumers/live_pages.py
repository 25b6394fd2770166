"""Keeps open pages up to date: at each hint, and once a second, it is checked whether a page's fragment has changed.

A changed fragment is sent whole. It is rendered once for all sockets that show it to people with the same rights
(live/fragments.py). A socket that joins gets a fragment that was checked after it joined, so a page never goes back to
an older state. Because the fragment is whole, a page that was suspended catches up with one message.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import Http404
from django.utils import translation

from agents.models import Host
from console import presenters
from console.auth import access
from console.consumers import credentials
from console.consumers.socket_lifecycle import GONE, Closed, Receive, Send, Socket
from console.live import fragments
from console.live.fragments import Fragment, Message, RightsChanged, Source
from console.runtime import websocket_protocol
from jobs.models import Job, Project


@dataclass(frozen=True, slots=True)
class Viewer:
    """A person and what decides what they see: people with equal rights are shown the same fragment."""

    user: User
    rights: Hashable
    topics: tuple[str, ...]


class LiveSocket(Socket):
    """A socket that updates one fragment of one page."""

    viewer: Viewer
    query: dict[str, str]

    def __init__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        super().__init__(scope, receive, send)
        self.query = dict(parse_qsl(scope.get("query_string", b"").decode("latin-1")))
        self.language = credentials.language(scope)
        self._write = websocket_protocol.direct_writer(scope)
        self._other_rights = asyncio.Event()

    def authorize(self, user: User) -> None:
        self.viewer = self.recheck(user)

    def recheck(self, user: User) -> Viewer:
        """Check the right to be here. Returns what the person may see now."""
        raise NotImplementedError

    def recheck_key(self) -> Hashable:
        return type(self).__name__, *sorted(self.arguments.items())

    def rechecked(self, answer: Any) -> None:
        changed = answer.rights != self.viewer.rights
        self.viewer = answer
        if changed:
            self._other_rights.set()

    def stamp(self, user: User) -> str:
        """A text that changes whenever the fragment changes. It must be cheap: it is asked for each second."""
        raise NotImplementedError

    def render(self, user: User, rights: Hashable) -> str:
        """The fragment for people with these rights, or an empty text when the object does not exist any more."""
        raise NotImplementedError

    def source(self) -> Source:
        user, rights = self.viewer.user, self.viewer.rights
        key = (*self.recheck_key(), *sorted(self.query.items()), self.language, rights)  # type: ignore[misc]
        return Source(key, self.viewer.topics, lambda: self.stamp(user), lambda: self._rendered(user, rights))

    def _rendered(self, user: User, rights: Hashable) -> str:
        """The fragment for all people with these rights. It is rendered as this person sees it, who may have other
        rights by now. Raises RightsChanged then, and when the person may not see it at all.
        """
        try:
            with translation.override(self.language):
                html = self.render(user, rights)
            changed = self.recheck(user).rights != rights
        except (Http404, PermissionDenied, presenters.NotForAll):
            changed = True
        if changed:
            raise RightsChanged
        return html

    async def serve(self) -> None:
        """Follow the fragment; when rights have changed, follow the one for the rights that this person has now."""
        while True:
            self._other_rights.clear()
            async with fragments.follow(self.source()) as fragment:
                sending = asyncio.create_task(self._send_each(fragment, fragment.join()))
                moved = asyncio.create_task(self._other_rights.wait())
                try:
                    await asyncio.wait({sending, moved}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    sending.cancel()
                    moved.cancel()
                if not sending.done():
                    continue
                with contextlib.suppress(RightsChanged):
                    sending.result()
            # Not a shared answer: an old one would lead back to the same fragment.
            self.viewer = await self._check(self.recheck)

    async def _send_each(self, fragment: Fragment, look: int) -> None:
        shown: Message | None = None
        while True:
            shown = await fragment.newer_than(shown, look)
            if not shown.text:
                raise Closed(GONE, "It is not here any more.")
            # A client that does not keep up waits, and gets the newest fragment then.
            if self._write is None or not self._write(shown.frame):
                await self._send({"type": "websocket.send", "text": shown.text})


class JobSocket(LiveSocket):
    def __init__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        super().__init__(scope, receive, send)
        self.job_id = int(self.arguments["job_id"])

    def recheck(self, user: User) -> Viewer:
        job = access.get_or_404(user, "see", Job.objects.select_related("project"), pk=self.job_id)
        return Viewer(user, access.verbs(user, job), (f"job:{self.job_id}",))

    def stamp(self, user: User) -> str:
        return presenters.job_stamp(self.job_id)

    def render(self, user: User, rights: Hashable) -> str:
        return presenters.job_live(user, self.job_id, self.query)


class JobListSocket(LiveSocket):
    def recheck(self, user: User) -> Viewer:
        """Everybody may see a list. A person who is in no project yet sees jobs as soon as they are in one."""
        projects = access.visible(user, Project.objects.order_by("name")).values_list("name", flat=True)
        return Viewer(user, access.jobs_key(user), tuple(f"jobs:{name}" for name in projects))

    def stamp(self, user: User) -> str:
        return presenters.list_stamp(user, self.query)

    def render(self, user: User, rights: Hashable) -> str:
        return presenters.list_live(user, self.query)


class HostListSocket(LiveSocket):
    def recheck(self, user: User) -> Viewer:
        access.require(user, "see", Host)
        return Viewer(user, presenters.hosts_rights(user), ("hosts",))

    def stamp(self, user: User) -> str:
        return presenters.hosts_stamp(user, self.query)

    def render(self, user: User, rights: Hashable) -> str:
        return presenters.hosts_live(user, self.query, rights)


class HostSocket(LiveSocket):
    def __init__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        super().__init__(scope, receive, send)
        self.host_id = int(self.arguments["host_id"])

    def recheck(self, user: User) -> Viewer:
        access.get_or_404(user, "see", Host.objects.all(), pk=self.host_id)
        return Viewer(user, access.rights_key(user), (f"host:{self.host_id}",))

    def stamp(self, user: User) -> str:
        return presenters.host_stamp(self.host_id)

    def render(self, user: User, rights: Hashable) -> str:
        return presenters.host_live(user, self.host_id)
