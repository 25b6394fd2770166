"""A client whose path is cut is cut off: when it answers no ping, and when it takes nothing of what waits for it."""

from __future__ import annotations

import asyncio
import base64
import socket
from urllib.parse import urlsplit

import pytest
import uvicorn
from django.utils import timezone

from console.auth import tokens
from console.runtime import web, websocket_protocol
from console.runtime.database_threads import in_database_thread
from console.runtime.websocket_protocol import Protocol
from tests.unit.console.log_rows import write

PATIENCE_S = 20
PONG = bytes([0x8A, 0x80, 0, 0, 0, 0])


@pytest.fixture
def quick(monkeypatch):
    """Times of a test, in place of half a minute."""
    monkeypatch.setattr(websocket_protocol, "STALLED_AFTER_S", 1.0)
    monkeypatch.setattr(websocket_protocol, "LOOK_EVERY_S", 0.2)


@pytest.fixture
def open_connections(monkeypatch):
    """The connections of the server that have not ended."""
    there = set()
    made, lost = Protocol.connection_made, Protocol.connection_lost

    def count(self, transport):
        there.add(self)
        made(self, transport)

    def forget(self, problem):
        there.discard(self)
        lost(self, problem)

    monkeypatch.setattr(Protocol, "connection_made", count)
    monkeypatch.setattr(Protocol, "connection_lost", forget)
    return there


async def shake_hands(server, path, user, small_window=False):
    """Open a WebSocket by hand, on a socket that nothing reads afterwards."""
    address, loop = urlsplit(server), asyncio.get_running_loop()
    client = socket.socket()
    if small_window:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    await loop.sock_connect(client, (address.hostname, address.port))
    token = (await in_database_thread(tokens.create, user, "test", timezone.now()))[1]
    key = base64.b64encode(bytes(16)).decode()
    lines = [
        f"GET {path} HTTP/1.1",
        f"Host: {address.netloc}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {key}",
        "Sec-WebSocket-Version: 13",
        f"Authorization: Bearer {token}",
        "\r\n",
    ]
    await loop.sock_sendall(client, "\r\n".join(lines).encode())
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        answer += await loop.sock_recv(client, 1)
    assert b" 101 " in answer
    return client


async def until(true):
    async with asyncio.timeout(PATIENCE_S):
        while not true():
            await asyncio.sleep(0.02)


async def tell(client, text):
    data = text.encode()
    frame = bytes([0x81, 0x80 | len(data)]) + bytes(4) + data
    await asyncio.get_running_loop().sock_sendall(client, frame)


async def test_a_viewer_that_takes_nothing_of_a_log_is_cut_off(
    server, cast, job, run, quick, open_connections, monkeypatch
):
    """No ping runs out meanwhile: the queue alone decides. The socket's task ends with it."""
    await in_database_thread(write, run, b"x" * 4_000_000)
    monkeypatch.setattr("console.consumers.logs.WINDOW", 8_000_000)
    path = f"/ws/jobs/{job.pk}/log/workerpool0-0"
    with await shake_hands(server, path, cast.vera, small_window=True) as client:
        await tell(client, '{"from": 0}')
        await until(lambda: any(not one.writable.is_set() for one in open_connections))
        [stuck] = open_connections
        await until(lambda: not open_connections)
        assert stuck.transport.get_write_buffer_size() == 0
        await until(lambda: not stuck.tasks)


async def test_a_client_that_answers_no_ping_is_cut_off_although_bytes_wait_for_it(
    transactional_db, cast, job, open_connections, monkeypatch
):
    config = web.config()
    config.ws_ping_interval, config.ws_ping_timeout = 0.2, 0.5
    listener = socket.create_server(("127.0.0.1", 0))
    running = uvicorn.Server(config)
    task = asyncio.create_task(running.serve(sockets=[listener]))
    try:
        address = f"ws://127.0.0.1:{listener.getsockname()[1]}"
        with await shake_hands(address, f"/ws/jobs/{job.pk}", cast.vera, small_window=True):
            [connection] = open_connections
            # More than the kernel takes: a polite close would wait for it.
            connection.transport.write(bytes(8_000_000))
            await until(lambda: not open_connections)
            assert connection.transport.get_write_buffer_size() == 0
    finally:
        running.should_exit = True
        await asyncio.wait_for(task, PATIENCE_S)


async def test_a_slow_client_that_goes_on_taking_bytes_stays(server, cast, job, quick, open_connections):
    with await shake_hands(server, f"/ws/jobs/{job.pk}", cast.vera) as client:
        [connection] = open_connections
        connection.transport.write(bytes(12_000_000))
        assert not connection.writable.is_set()
        loop = asyncio.get_running_loop()
        ends, size = loop.time() + 2.5, connection.transport.get_write_buffer_size()
        while loop.time() < ends:
            await loop.sock_recv(client, 65536)
            await asyncio.sleep(0.02)
        assert connection in open_connections and connection.transport.get_write_buffer_size() < size
