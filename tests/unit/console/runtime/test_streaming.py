"""A response that is streamed from a plain generator: each part is made when the one before it was sent."""

from __future__ import annotations

import asyncio
import threading

import pytest
from asgiref.testing import ApplicationCommunicator
from django.http import StreamingHttpResponse
from django.urls import path

from console.runtime.asgi_handler import ThreadedHandler

made = []
urlpatterns = [path("parts", lambda request: StreamingHttpResponse(parts()))]


def parts():
    try:
        for number in range(1_000):
            made.append(threading.current_thread().name)
            yield f"part {number}\n"
    finally:
        made.append("closed")


@pytest.fixture
async def talk(settings):
    settings.ALLOWED_HOSTS = ["*"]
    made.clear()
    handler = ThreadedHandler()
    scope = {"type": "http", "method": "GET", "path": "/parts", "headers": [], "query_string": b""}
    talk = ApplicationCommunicator(handler, scope)
    await talk.send_input({"type": "http.request", "body": b""})
    assert (await talk.receive_output(30))["status"] == 200
    yield talk
    handler._threads.shutdown()


@pytest.mark.django_db(transaction=True)
@pytest.mark.urls(__name__)
async def test_the_first_part_is_sent_before_the_last_is_made(talk):
    slow, send = asyncio.Semaphore(1), talk.output_queue.put

    async def send_slowly(message):
        await slow.acquire()
        await send(message)

    talk.output_queue.put = send_slowly
    assert (await talk.receive_output(30))["body"] == b"part 0\n"
    assert len(made) <= 3 and all(name.startswith("request") for name in made)
    for _ in range(2_000):
        slow.release()
    body = b""
    while (message := await talk.receive_output(30)).get("more_body"):
        body += message["body"]
    assert body.endswith(b"part 999\n") and made[-1] == "closed"
