"""Counts the requests and sockets of each client address and of each session, behind a proxy too.

The HTTP protocol counts connections, and behind a proxy all of them are the proxy's. Here the address is the one that
the proxy names, and the session is the cookie or the token that the request shows, known or not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from typing import Any

from console.runtime.client_limits.limits import Limits
from console.runtime.client_limits.open_connections import TooMany

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

# As the pages understand it: try again later.
TRY_AGAIN = 1013


class ClientGate:
    def __init__(self, application: Application, limits: Limits, session_cookie: str) -> None:
        self._application = application
        self._limits = limits
        self._cookie = f"{session_cookie}=".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with ExitStack() as held:
            try:
                self._count(scope, held)
            except TooMany as problem:
                await _refuse(scope, receive, send, str(problem))
                return
            await self._application(scope, receive, send)

    def _count(self, scope: Scope, held: ExitStack) -> None:
        client = scope.get("client")
        address = self._limits.proxies.counted(client[0] if client else "")
        if address:
            held.enter_context(self._limits.by_address.holding(address))
        session = self._session(scope)
        if session:
            held.enter_context(self._limits.by_session.holding(session))

    def _session(self, scope: Scope) -> str:
        """A digest of the session or token of a request: it is in a line of the log when it has too many."""
        for name, value in scope["headers"]:
            if name == b"authorization":
                return hashlib.sha256(value).hexdigest()[:12]
            if name == b"cookie" and self._cookie in value:
                cookie = value.partition(self._cookie)[2].partition(b";")[0]
                return hashlib.sha256(cookie).hexdigest()[:12]
        return ""


async def _refuse(scope: Scope, receive: Receive, send: Send, text: str) -> None:
    if scope["type"] == "websocket":
        # The browser tells a page nothing of a refused handshake, but it tells the reason of a close.
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.close", "code": TRY_AGAIN, "reason": text})
        return
    body = json.dumps({"error": {"code": 429, "message": text, "status": "RESOURCE_EXHAUSTED"}}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"retry-after", b"5"),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 429, "headers": headers})
    await send({"type": "http.response.body", "body": body})
