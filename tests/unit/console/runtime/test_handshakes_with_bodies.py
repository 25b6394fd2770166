"""A WebSocket handshake that brings a body is refused at once."""

from __future__ import annotations

import asyncio

import pytest
import uvicorn
from uvicorn.server import ServerState

from console.runtime import websocket_protocol
from console.runtime.client_limits import http_protocol

BEFORE = b"GET /before HTTP/1.1\r\nHost: x\r\n\r\n"
HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 3\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\nabc"
)


async def application(scope, receive, send):
    await receive()
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.close"})
    else:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})


async def answer_of(reader):
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


async def told(*pieces):
    """What a client gets that sends these pieces, each after the answer to the one before it; and what failed."""
    failed = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: failed.append(context))
    config = uvicorn.Config(
        application,
        http=http_protocol.Protocol,
        ws=websocket_protocol.Protocol,
        lifespan="off",
        log_config=None,
    )
    config.load()
    state = ServerState()
    server = await loop.create_server(
        lambda: http_protocol.Protocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    answers = []
    async with server, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        for piece in pieces:
            writer.write(piece)
            answers.append(await answer_of(reader))
        rest = await reader.read()
        writer.close()
    assert b"is not the handshake" in rest
    return answers, failed


@pytest.mark.parametrize("before", [(), (BEFORE,)])
def test_a_handshake_with_a_body_is_refused(before):
    answers, failed = asyncio.run(told(*before, HANDSHAKE))
    assert failed == []
    assert answers[-1].startswith(b"HTTP/1.1 400 ")
