"""All addresses of WebSockets."""

from __future__ import annotations

from typing import Any

from channels.routing import URLRouter
from django.urls import re_path

from console.consumers.held_shells import HeldShellSocket
from console.consumers.live_pages import HostListSocket, HostSocket, JobListSocket, JobSocket, LivePage
from console.consumers.logs import LogSocket
from console.consumers.merged_logs import MergedLogSocket
from console.consumers.shells import ShellSocket
from console.consumers.socket_lifecycle import Receive, Send, Socket

# Ids of the length that the database can hold. Other ids are answered like an unknown address.
JOB = r"(?P<job_id>[0-9]{1,19})"
HOST = r"(?P<host_id>[0-9]{1,9})"
REPLICA = r"(?P<replica>[a-z0-9-]{1,40})"
RUN = r"(?P<run_id>[A-Za-z0-9._-]{1,80})"
SHELL = r"(?P<key>[0-9a-f]{32})"


async def refuse_unknown(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Refuse the handshake at an unknown address."""
    await receive()
    await send({"type": "websocket.close", "code": 4404, "reason": "There is nothing here."})


def route(pattern: str, socket: type[Socket]) -> Any:
    # Channels routes ASGI applications with Django's re_path, whose types allow only views.
    return re_path(pattern, socket.as_asgi())  # type: ignore[arg-type]


websocket_urlpatterns = [
    route(r"^/*ws/live/?$", LivePage),
    route(r"^/*ws/jobs/?$", JobListSocket),
    route(rf"^/*ws/jobs/{JOB}/?$", JobSocket),
    route(rf"^/*ws/jobs/{JOB}/log/?$", MergedLogSocket),
    route(rf"^/*ws/jobs/{JOB}/log/{REPLICA}/?$", LogSocket),
    route(r"^/*ws/hosts/?$", HostListSocket),
    route(rf"^/*ws/hosts/{HOST}/?$", HostSocket),
    route(rf"^/*ws/shell/{RUN}/?$", ShellSocket),
    route(rf"^/*ws/shells/{SHELL}/?$", HeldShellSocket),
    re_path(r"", refuse_unknown),  # type: ignore[arg-type]
]
websocket = URLRouter(websocket_urlpatterns)
