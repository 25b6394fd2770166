"""The ASGI handler: a request enters one thread of a permanent pool and leaves no connection in it."""

from __future__ import annotations

import asyncio
import threading

import pytest
from asgiref.testing import ApplicationCommunicator
from django.db import connection
from django.http import HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from console import large_bodies
from console.large_bodies import BodyWanted
from console.runtime.requests import asgi_handler
from console.runtime.requests.asgi_handler import ThreadedHandler

threads = set()
urlpatterns = [
    path("seen", lambda request: seen(request)),
    path("upload/storage/v1/b/runs/o", csrf_exempt(lambda request: uploaded(request))),
]


def seen(request):
    threads.add(threading.current_thread().name)
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    seen.connections.append(connection.connection)
    return HttpResponse("here")


def uploaded(request):
    if large_bodies.is_first_call(request):
        return BodyWanted(Memory())
    return HttpResponse(getattr(request, large_bodies.RECEIVED).sink.data)


class Memory:
    share, data = "", b""

    def write(self, data):
        self.data += data

    def discard(self):
        pass


async def ask(handler, method="GET", path="/seen"):
    scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b""}
    talk = ApplicationCommunicator(handler, scope)
    await talk.send_input({"type": "http.request", "body": b"bytes" if method == "POST" else b""})
    start, body = await talk.receive_output(30), await talk.receive_output(30)
    await talk.wait(30)
    return start["status"], body["body"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.urls(__name__)
def test_requests_share_a_few_threads_and_leave_no_connection_in_them(settings, monkeypatch):
    """With one thread: an executor with more may begin a second one, before the first has said that it is idle."""
    settings.ALLOWED_HOSTS = ["*"]
    monkeypatch.setattr(asgi_handler, "THREADS", 1)
    threads.clear()
    seen.connections = []

    async def many():
        handler = ThreadedHandler()
        answers = [await ask(handler) for _ in range(3)]
        handler._threads.submit(lambda: connection.close()).result()
        handler._threads.shutdown()
        return answers

    assert asyncio.run(many()) == [(200, b"here")] * 3
    assert threads == {"request_0"}
    if connection.vendor == "sqlite":
        assert len({id(each) for each in seen.connections}) == 1  # SQLite's file is opened once


@pytest.mark.urls(__name__)
@pytest.mark.django_db(transaction=True)
def test_that_a_body_may_come_is_logged_as_no_error(settings, caplog):
    settings.ALLOWED_HOSTS = ["*"]

    async def upload():
        handler = ThreadedHandler()
        answer = await ask(handler, "POST", "/upload/storage/v1/b/runs/o")
        handler._threads.submit(lambda: connection.close()).result()
        handler._threads.shutdown()
        return answer

    assert asyncio.run(upload()) == (200, b"bytes")
    assert "Internal Server Error" not in caplog.text
