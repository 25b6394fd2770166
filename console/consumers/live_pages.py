"""Keeps open pages up to date: at each hint, and once a second, a socket checks whether its fragment has changed.

A changed fragment is sent whole. Each socket reads, renders and sends in this order, so a page never goes back to an
older state. Because the fragment is whole, a page that was suspended catches up with one message.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import parse_qsl

from django.contrib.auth.models import User

from agents.models import Host
from console import presenters
from console.auth import access
from console.consumers.socket_lifecycle import GONE, Closed, Receive, Send, Socket
from console.live import registry
from console.runtime.database_threads import in_database_thread
from jobs.models import Job, Project

# A burst of changes is shown in steps of this length: nobody reads faster, and each step is rendered for each viewer.
STEP_S = 0.1


class LiveSocket(Socket):
    """A socket that updates one fragment of one page."""

    user: User
    topics: tuple[str, ...] = ()

    def authorize(self, user: User) -> None:
        self.require_access(user)
        self.user = user

    def require_access(self, user: User) -> None:
        raise NotImplementedError

    def stamp(self) -> str:
        """A text that changes whenever the fragment changes.

        It must be cheap: every open page asks for it each second.
        """
        raise NotImplementedError

    def render(self) -> str:
        """The fragment, or an empty text when the object does not exist any more."""
        raise NotImplementedError

    async def serve(self) -> None:
        shown = None
        async with registry.of_this_loop().watch(*self.topics) as watch:
            while True:
                # The stamp is read before the fragment: a change between the two is shown now and checked once more.
                stamp = await in_database_thread(self.stamp)
                if stamp != shown:
                    html = await in_database_thread(self.render)
                    if not html:
                        raise Closed(GONE, "It is not here any more.")
                    await self.send_json({"stamp": stamp, "html": html})
                    shown = stamp
                    await asyncio.sleep(STEP_S)
                await watch.wait()


class JobSocket(LiveSocket):
    def __init__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        super().__init__(scope, receive, send)
        self.job_id = int(self.arguments["job_id"])
        self.topics = (f"job:{self.job_id}",)
        self.query = _query(scope)

    def require_access(self, user: User) -> None:
        access.get_or_404(user, "see", Job.objects.select_related("project"), pk=self.job_id)

    def stamp(self) -> str:
        return presenters.job_stamp(self.job_id)

    def render(self) -> str:
        return presenters.job_live(self.user, self.job_id, self.query)


class JobListSocket(LiveSocket):
    def __init__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        super().__init__(scope, receive, send)
        self.query = _query(scope)

    def require_access(self, user: User) -> None:
        """Everybody may see a list. A person who is in no project yet sees jobs as soon as they are in one."""
        projects = access.visible(user, Project.objects.order_by("name")).values_list("name", flat=True)
        self.topics = tuple(f"jobs:{name}" for name in projects)

    def stamp(self) -> str:
        return presenters.list_stamp(self.user)

    def render(self) -> str:
        return presenters.list_live(self.user, self.query)


class HostListSocket(LiveSocket):
    topics = ("hosts",)

    def __init__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        super().__init__(scope, receive, send)
        self.query = _query(scope)

    def require_access(self, user: User) -> None:
        access.require(user, "see", Host)

    def stamp(self) -> str:
        return presenters.hosts_stamp(self.user, self.query)

    def render(self) -> str:
        return presenters.hosts_live(self.user, self.query)


class HostSocket(LiveSocket):
    def __init__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        super().__init__(scope, receive, send)
        self.host_id = int(self.arguments["host_id"])
        self.topics = (f"host:{self.host_id}",)

    def require_access(self, user: User) -> None:
        access.get_or_404(user, "see", Host.objects.all(), pk=self.host_id)

    def stamp(self) -> str:
        return presenters.host_stamp(self.host_id)

    def render(self) -> str:
        return presenters.host_live(self.user, self.host_id)


def _query(scope: dict[str, Any]) -> dict[str, str]:
    return dict(parse_qsl(scope.get("query_string", b"").decode("latin-1")))
