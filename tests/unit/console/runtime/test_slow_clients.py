"""A client that takes its answer slowly gets all of it; one that takes nothing is cut off."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time

import pytest
import uvicorn
from uvicorn.server import ServerState

from console.runtime.client_limits import http_protocol

SIZE, BLOCK = 24 * 1024 * 1024, 1024 * 1024
STALLED_S = 1.5


async def answer(scope, receive, send):
    length = (b"content-length", str(SIZE).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    for _ in range(SIZE // BLOCK):
        await send({"type": "http.response.body", "body": b"x" * BLOCK, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def received(take):
    """How many bytes a client gets that reads all of it after `take`."""

    async def run():
        config = uvicorn.Config(answer, http=http_protocol.Protocol, lifespan="off", log_config=None)
        config.load()
        state = ServerState()
        server = await asyncio.get_running_loop().create_server(
            lambda: http_protocol.Protocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0
        )
        async with server:
            return await asyncio.to_thread(ask, server.sockets[0].getsockname())

    def ask(address):
        got = 0
        with socket.create_connection(address, 30) as client, contextlib.suppress(ConnectionError):
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            got += take(client)
            while part := client.recv(BLOCK):
                got += len(part)
                if got > SIZE:
                    break
        return got

    return asyncio.run(run())


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(http_protocol, "STALLED_S", STALLED_S)


def test_a_client_that_takes_little_at_a_time_gets_all_of_its_answer():
    def slowly(client):
        """Less than what makes room in the buffer of our kernel: only the kernel knows of it."""
        got, end = 0, time.monotonic() + 5 * STALLED_S
        while time.monotonic() < end:
            got += len(client.recv(16 * 1024))
            time.sleep(0.05)
        return got

    assert received(slowly) > SIZE


@pytest.mark.parametrize("more", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_a_client_that_takes_nothing_is_cut_off(more):
    """Also when it sends the next request meanwhile."""

    def nothing(client):
        time.sleep(0.5)
        client.sendall(more)
        time.sleep(2 * STALLED_S)
        return 0

    assert received(nothing) < SIZE
