"""A response that is streamed from a plain generator: each part is made when the one before it was sent, and the
generator is closed when the client leaves.
"""

from __future__ import annotations

import asyncio
import threading

import pytest
from asgiref.testing import ApplicationCommunicator
from django.http import StreamingHttpResponse
from django.urls import path

from console.runtime.requests.asgi_handler import ThreadedHandler

made = []
# The fourth part is made when the test allows it.
waits, may_go_on = threading.Event(), threading.Event()
urlpatterns = [path("parts", lambda request: StreamingHttpResponse(parts()))]


def parts():
    try:
        for number in range(1_000):
            made.append(threading.current_thread().name)
            if number == 3:
                waits.set()
                may_go_on.wait(30)
            yield f"part {number}\n"
    finally:
        made.append(f"closed in {threading.current_thread().name}")


@pytest.fixture
async def talk(settings):
    settings.ALLOWED_HOSTS = ["*"]
    made.clear()
    waits.clear()
    may_go_on.clear()
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
    may_go_on.set()
    for _ in range(2_000):
        slow.release()
    body = b""
    while (message := await talk.receive_output(30)).get("more_body"):
        body += message["body"]
    await talk.wait(30)
    assert body.endswith(b"part 999\n") and made[-1].startswith("closed")


@pytest.mark.django_db(transaction=True)
@pytest.mark.urls(__name__)
async def test_a_client_that_leaves_closes_the_generator(talk):
    """The client leaves while a part is sent, as one does that does not read."""
    stuck, send = asyncio.Event(), talk.output_queue.put

    async def send_and_wait(message):
        await send(message)
        await stuck.wait()

    talk.output_queue.put = send_and_wait
    await talk.receive_output(30)
    await talk.send_input({"type": "http.disconnect"})
    await talk.wait(30)
    assert made[-1].startswith("closed") and len(made) < 1_000


@pytest.mark.django_db(transaction=True)
@pytest.mark.urls(__name__)
async def test_a_client_that_leaves_while_a_part_is_made_closes_the_generator_after_it(talk):
    """A generator that runs cannot be closed: it makes this part, and no other."""
    assert await asyncio.to_thread(waits.wait, 30)
    await talk.send_input({"type": "http.disconnect"})
    await talk.wait(30)
    may_go_on.set()
    async with asyncio.timeout(30):
        while not made[-1].startswith("closed"):
            await asyncio.sleep(0.01)
    assert len(made) == 5
