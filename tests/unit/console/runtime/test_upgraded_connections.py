"""A connection that became a WebSocket keeps nothing of the HTTP protocol that it had, and is still counted."""

from __future__ import annotations

import asyncio
import gc
import weakref
from dataclasses import replace

import uvicorn
from uvicorn.server import ServerState

from console.runtime import websocket_protocol
from console.runtime.client_limits import http_protocol, limits
from console.runtime.client_limits.open_connections import Proxies
from tests.unit.console.runtime.test_messages_of_sockets import HANDSHAKE

CLIENT = "127.0.0.1"


async def application(scope, receive, send):
    await receive()
    await send({"type": "websocket.accept"})
    assert (await receive())["type"] == "websocket.disconnect"


async def until(condition):
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.01)


async def open_and_close(by_peer):
    """How often the client was counted, and how many of its HTTP protocols there were, while a socket was open."""
    config = uvicorn.Config(
        application,
        http=http_protocol.Protocol,
        ws=websocket_protocol.Protocol,
        lifespan="off",
        log_config=None,
    )
    config.load()
    born = weakref.WeakSet()

    def protocol():
        one = http_protocol.Protocol(config=config, server_state=ServerState(), app_state={})
        born.add(one)
        return one

    server = await asyncio.get_running_loop().create_server(protocol, CLIENT, 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(HANDSHAKE)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        await asyncio.sleep(0.05)
        seen = by_peer._open[CLIENT], len(born)
        writer.close()
        await until(lambda: not by_peer._open[CLIENT])
    return seen


def test_the_http_protocol_ends_and_the_connection_is_counted_until_it_is_lost(monkeypatch):
    current = replace(limits.current(), proxies=Proxies(()))
    monkeypatch.setattr(limits, "current", lambda: current)
    gc.disable()
    try:
        assert asyncio.run(open_and_close(current.by_peer)) == (1, 0)
    finally:
        gc.enable()
