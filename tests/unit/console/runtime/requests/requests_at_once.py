"""A server that takes connections and answers nothing, and requests that are under way beside each other."""

from __future__ import annotations

import asyncio
import socket
import threading
import time

from asgiref.testing import ApplicationCommunicator
from django.db import connections


class StillServer:
    """Accepts connections, and answers nothing until it is ended."""

    def __init__(self):
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.taken = []
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()

    @property
    def port(self):
        return self.listening.getsockname()[1]

    def accept(self):
        while True:
            try:
                self.taken.append(self.listening.accept()[0])
            except OSError:
                return

    def end(self):
        if self.listening.fileno() < 0:
            return
        self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()
        self.thread.join()
        for each in self.taken:
            each.close()


def talk(handler, method, path, token="", body=b"", query=b"", headers=()):
    """A connection, on which nothing was sent yet."""
    shown = [(b"authorization", f"Bearer {token}".encode())] if token else []
    lines = [(b"host", b"testserver"), *shown, *headers, (b"content-length", str(len(body)).encode())]
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query,
        "headers": lines,
        "client": ("10.1.2.3", 4711),
    }
    return ApplicationCommunicator(handler, scope)


def begin(handler, method, path, token="", body=b"", query=b"", headers=()):
    """A request that was sent, and the task of its answer."""
    sent = talk(handler, method, path, token, body, query, headers)

    async def answer():
        await sent.send_input({"type": "http.request", "body": body})
        status = (await sent.receive_output(120))["status"]
        while (await sent.receive_output(120)).get("more_body"):
            pass
        await sent.wait(120)
        return status

    return asyncio.create_task(answer())


async def asked(question):
    """The answer of something that may ask the database, in a thread whose connection is closed then."""

    def ask():
        try:
            return question()
        finally:
            connections.close_all()

    return await asyncio.to_thread(ask)


async def until(condition):
    end = time.monotonic() + 30
    while not await asked(condition):
        assert time.monotonic() < end
        await asyncio.sleep(0.02)
