"""The shell socket: input and output, each at its pace."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
from django.db import connections
from django.utils import timezone
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from agents.ssh import keys, pty
from console.auth import tokens
from console.consumers import shells as consumer
from console.consumers import socket_lifecycle
from console.live.terminals import WINDOW, Terminal
from console.runtime import database_threads, websocket_protocol
from console.runtime.database_threads import in_database_thread
from jobs.models import ShellSession
from tests.unit.console.consumers.fake_shell import FakeShell, end_of


async def test_keys_go_to_the_host_and_output_comes_back(opened, run, shell):
    page = await opened()
    assert page.told[0] == {"opening": "train@gpu-a"} and shell.sizes == [(100, 30)]
    await page.type(b"ls\n\x03")
    await page.until(lambda v: v.bytes == b"echo:ls\n\x03")
    await page.tell(resize=[80, 24])
    await page.until(lambda v: v.bytes.endswith(b"resized"))
    assert shell.sizes[-1] == (80, 24)
    shell.out.put(b"")
    assert (await page.until_closed()) == (1000, "The shell has ended.")
    assert await in_database_thread(end_of, run) == ("bob", "The shell has ended.", "192.0.2.7")


async def test_a_keystroke_makes_no_query(opened, shell, monkeypatch):
    monkeypatch.setattr(socket_lifecycle, "RECHECK_S", 1e6)
    page = await opened()
    asked = []
    run = database_threads._run
    monkeypatch.setattr(
        database_threads, "_run", lambda *args, **kwargs: asked.append(args) or run(*args, **kwargs)
    )
    for number in range(1, 200):
        await page.type(b"k")
        await page.until(lambda v, number=number: v.bytes.count(b"echo:") == number)
    # Joining the topics gives a hint, and the clock may ask for a check: a few queries, and none for a key.
    assert len(asked) < 20
    await page.leave()
    assert shell.closed.wait(30)


async def test_the_threads_of_a_shell_hold_no_connection(visit, run, monkeypatch):
    """The threads end with the shell. The pool would lose connections that they hold: after 24 shells none was left."""
    fake, held = FakeShell(), []

    def opening(target, key, request):
        held.extend(each for each in connections.all(initialized_only=True) if each.connection is not None)
        held.append(key.get_name())
        return fake

    monkeypatch.setattr(pty, "open_shell", opening)
    page = await visit(f"/ws/shell/{run.pk}", "bob")
    await page.tell(resize=[80, 24])
    await page.until(lambda v: {"ready": True} in v.told)
    assert held == ["ssh-ed25519"]
    await page.leave()
    assert fake.closed.wait(30)


async def test_an_unreadable_private_key_is_reported(visit, run, shell, monkeypatch):
    def unreadable():
        raise keys.KeyUnreadable("The deployment's SSH key was encrypted with another key.")

    monkeypatch.setattr(keys, "private_key", unreadable)
    page = await visit(f"/ws/shell/{run.pk}", "bob")
    await page.tell(resize=[80, 24])
    assert (await page.until_closed()) == (1013, "The deployment's SSH key was encrypted with another key.")
    assert not await in_database_thread(ShellSession.objects.exists) and shell.sizes == []


async def test_a_flood_of_output_waits_until_the_terminal_acknowledges(opened, shell):
    shell.flood = True
    page = await opened()
    await page.until(lambda v: len(v.bytes) >= WINDOW)
    while not await page.quiet(0.5):
        await page.step()
    assert len(page.bytes) == WINDOW
    assert shell.read_bytes == 5 * 60000, "what was read beyond that waits here"
    # A keystroke gets through in the meantime.
    await page.type(b"\x03")
    assert await in_database_thread(lambda: wait(lambda: shell.typed == b"\x03"))
    await page.tell(ack=len(page.bytes))
    before = len(page.bytes)
    await page.until(lambda v: len(v.bytes) >= before + WINDOW)
    await page.leave()
    assert shell.closed.wait(30)


def wait(true):
    for _ in range(3000):
        if true():
            return True
        threading.Event().wait(0.01)
    return False


async def test_a_paste_is_taken_at_the_hosts_pace(opened, shell):
    page = await opened()
    paste = bytes(range(256)) * 400
    shell.takes.clear()
    for at in range(0, len(paste), 16384):
        await page.type(paste[at : at + 16384])
    await page.tell(ack=0)
    shell.takes.set()
    await page.until(lambda v: any(told.get("ack", 0) >= len(paste) - 32768 for told in v.told))
    assert await in_database_thread(lambda: wait(lambda: shell.typed == paste))
    shell.takes.clear()
    for _ in range(40):
        await page.type(b"y" * 16384)
    assert (await page.until_closed())[0] == 4400
    shell.takes.set()


async def test_output_comes_in_its_order_through_our_server(server, cast, run, shell, monkeypatch):
    """Some output is sent at once, some by the forwarding task, and some by a later read."""
    went = []
    shell.busy = lambda what, number: what == "read" and number % 3 == 0
    honest = websocket_protocol.Protocol.write_now
    # Every third read finds the connection busy.
    monkeypatch.setattr(
        websocket_protocol.Protocol,
        "write_now",
        lambda self, frame: went.append(len(went) % 3 < 2 and honest(self, frame)) or went[-1],
    )
    token = (await in_database_thread(tokens.create, cast.bob, "test", timezone.now()))[1]
    headers = {"Authorization": f"Bearer {token}"}
    blocks = [b"%06d " % number * 1000 for number in range(150)]
    async with connect(f"{server}/ws/shell/{run.pk}", additional_headers=headers, proxy=None) as page:
        await page.send(json.dumps({"resize": [80, 24]}))
        for block in blocks:
            shell.out.put(block)
        came = b""
        async with asyncio.timeout(60):
            while len(came) < len(b"".join(blocks)):
                message = await page.recv()
                if isinstance(message, bytes):
                    came += message
                    await page.send(json.dumps({"ack": len(came)}))
    assert came == b"".join(blocks) and 0 < went.count(True) < len(blocks)


async def test_keys_arrive_in_their_order_through_our_server(server, cast, run, shell, monkeypatch):
    """Some input is written at once, some by the shell's thread, some by the task that reads all other messages.

    Too much input ends the shell, as it does through ASGI.
    """
    went = []
    shell.busy = lambda what, number: what == "write" and number % 5 == 0
    honest = consumer.ShellSocket._write_at_once
    monkeypatch.setattr(
        consumer.ShellSocket,
        "_write_at_once",
        lambda self, data: went.append(len(went) % 3 < 2 and honest(self, data)) or went[-1],
    )
    token = (await in_database_thread(tokens.create, cast.bob, "test", timezone.now()))[1]
    headers = {"Authorization": f"Bearer {token}"}
    keys = [b"%06d " % number * 20 for number in range(300)]
    async with connect(f"{server}/ws/shell/{run.pk}", additional_headers=headers, proxy=None) as page:
        await page.send(json.dumps({"resize": [80, 24]}))
        async with asyncio.timeout(60):
            while "ready" not in json.loads(await page.recv()):
                pass
        for key in keys:
            await page.send(key)
        assert await in_database_thread(lambda: wait(lambda: len(shell.typed) >= len(b"".join(keys))))
        assert shell.typed == b"".join(keys) and 0 < went.count(True) < len(keys)
        shell.takes.clear()
        with pytest.raises(ConnectionClosed) as closed:
            async with asyncio.timeout(60):
                for _ in range(100):
                    await page.send(b"y" * 16384)
                while True:
                    await page.recv()
        assert closed.value.rcvd.code == 4400
        shell.takes.set()


async def test_a_busy_shell_is_not_read_after_it_is_closed():
    fake = FakeShell()
    fake.busy = lambda what, number: what == "read"
    terminal = Terminal(lambda: fake, lambda: None, lambda data: False)
    async with asyncio.timeout(60):
        while terminal._retry_timer is None:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(terminal.close)
        while terminal._retry_timer is not None:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("sending", "opened", "takes"), [(False, True, True), (True, True, False), (False, False, False)]
)
async def test_output_is_sent_at_once_only_if_nothing_is_being_sent(sending, opened, takes):
    page = consumer.ShellSocket({"url_route": {"kwargs": {}}}, None, None)
    page._write_echo = lambda frame: True
    page._sending, page._ready_sent = sending, opened
    assert page._send_at_once(b"x") is takes
