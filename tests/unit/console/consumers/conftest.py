"""Clients of sockets without a server: they exchange ASGI messages with the consumers."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest
import uvicorn
from asgiref.testing import ApplicationCommunicator
from django.conf import settings
from django.test import Client

from console.asgi import application
from console.live import beats, registry
from console.runtime import database_threads, web
from tests.unit.console.consumers.fake_shell import opened, shell
from tests.unit.console.script_tokens import token_of
from tests.unit.console.views.conftest import cast, project
from tests.unit.console.views.example_rows import a_host, a_job

__all__ = ["cast", "opened", "project", "shell"]

PATIENCE_S = 30


class Visitor:
    """A client of one socket. It keeps received JSON in `told` and received bytes in `bytes`, in their order.

    Beats are in `beats`: they come at any time. Parts of a page are in `html`.
    """

    def __init__(self, path, headers):
        path, _, query = path.partition("?")
        client = ["192.0.2.7", 5000]
        scope = {
            "type": "websocket",
            "path": path,
            "query_string": query.encode(),
            "headers": headers,
            "client": client,
        }
        self.socket = ApplicationCommunicator(application, scope)
        self.accepted = False
        self.told = []
        self.beats = []
        self.html = []
        self.bytes = b""
        self.closed = None

    async def open(self):
        await self.socket.send_input({"type": "websocket.connect"})
        answer = await self.socket.receive_output(timeout=PATIENCE_S)
        self.accepted = answer["type"] == "websocket.accept"

    async def tell(self, **message):
        await self.say(json.dumps(message))

    async def say(self, text):
        await self.socket.send_input({"type": "websocket.receive", "text": text})

    async def type(self, data):
        await self.socket.send_input({"type": "websocket.receive", "bytes": data})

    async def step(self):
        """Receive one message."""
        message = await self.socket.receive_output(timeout=PATIENCE_S)
        if message["type"] == "websocket.close":
            self.closed = (message.get("code"), message.get("reason", ""))
        elif message.get("text") is not None:
            self.keep(message["text"])
        else:
            self.bytes += message["bytes"]
        return message

    def keep(self, text):
        if text.startswith("<"):
            self.html.append(text)
            return
        document = json.loads(text)
        (self.beats if "beat" in document else self.told).append(document)

    async def until(self, true):
        """Receive messages until the condition holds for this client."""
        while not true(self):
            assert self.closed is None, f"closed: {self.closed}"
            await self.step()

    async def until_closed(self):
        while self.closed is None:
            await self.step()
        return self.closed

    async def quiet(self, seconds=0.3):
        return await self.socket.receive_nothing(timeout=seconds)

    async def leave(self):
        await self.socket.send_input({"type": "websocket.disconnect", "code": 1001})
        await self.socket.wait(timeout=PATIENCE_S)


@pytest.fixture
def visit(transactional_db, cast):
    """visit(path, "vera"): a script with Vera's token. visit(path, "vera", page=True): a page in her browser."""

    def headers_of(who, page, origin):
        headers = [(b"host", b"testserver")]
        if page:
            browser = Client()
            browser.force_login(getattr(cast, who))
            cookie = f"{settings.SESSION_COOKIE_NAME}={browser.cookies[settings.SESSION_COOKIE_NAME].value}"
            headers += [(b"cookie", cookie.encode()), (b"origin", origin.encode())]
        elif who:
            token = token_of(getattr(cast, who))
            headers.append((b"authorization", f"Bearer {token}".encode()))
        return [pair for pair in headers if pair[1]]

    async def open_as(path, who="vera", page=False, origin="http://testserver", accepts=""):
        headers = await database_threads.in_database_thread(headers_of, who, page, origin)
        visitor = Visitor(path, [*headers, (b"accept-language", accepts.encode())])
        await visitor.open()
        return visitor

    return open_as


@pytest.fixture
def job(transactional_db, cast, project):
    return a_job(project, cast.bob, host=a_host("gpu-a"))


@pytest.fixture
def run(job):
    return job.runs.select_related("replica", "host").get()


@pytest.fixture(autouse=True)
def few_beats(monkeypatch):
    """Many tests look whether a socket is silent. test_beats.py is about beats."""
    monkeypatch.setattr(beats, "BEAT_S", 1000.0)


@pytest.fixture(autouse=True)
async def tidy():
    yield
    await registry.of_this_loop().close()
    database_threads.close()


@pytest.fixture
async def server(transactional_db):
    """Our uvicorn server in this event loop. Yields its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    running = uvicorn.Server(web.config())
    task = asyncio.create_task(running.serve(sockets=[listener]))
    yield f"ws://127.0.0.1:{listener.getsockname()[1]}"
    running.should_exit = True
    await asyncio.wait_for(task, PATIENCE_S)
