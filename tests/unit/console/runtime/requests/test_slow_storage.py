"""Stored files are in a storage elsewhere that stands still: pages and REST answer as usual."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from contextlib import ExitStack
from datetime import timedelta

import pytest
from asgiref.testing import ApplicationCommunicator
from django.contrib.auth.models import User
from django.db import connections
from django.http import Http404
from django.test import RequestFactory
from django.urls import resolve
from django.utils import timezone

from console import environment
from console.runtime import backend_settings
from console.runtime.requests import large_requests
from console.runtime.requests.asgi_handler import STORAGE_THREADS, THREADS, ThreadedHandler
from console.runtime.requests.storage_requests import Work, work_of
from jobs.artifacts import buckets, objects, room, storage
from jobs.models import Membership, Project, Reservation, Role, StoredObject
from jobs.projects import quotas
from jobs.projects.quotas import QuotaTarget
from jobs.rules.scheduling.quota import Metric
from tests.harness.s3_server import S3Server
from tests.unit.console.script_tokens import token_of

AT_ONCE = 20
# A request needs some tens of milliseconds, on a machine that may be busy.
USUAL_S = 5.0
B = "/api/v1/projects/default/buckets/ours"


class StillS3:
    """Accepts connections, and answers nothing until it is ended."""

    def __init__(self):
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.taken = []
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()

    @property
    def url(self):
        return f"s3://kept-files/lab?endpoint=http://127.0.0.1:{self.listening.getsockname()[1]}"

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


@pytest.fixture
def still(settings, monkeypatch):
    made = StillS3()
    settings.ALLOWED_HOSTS = ["*"]
    for name, value in S3Server.credentials.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *args: 0)

    def use():
        here = environment.read(
            {"TRAINYARD_DATA": str(settings.TRAINYARD.data), "TRAINYARD_STORAGE_URL": made.url}
        )
        settings.TRAINYARD = here
        settings.STORAGES = settings.STORAGES | {"artifacts": backend_settings.stored_files(here, "ty-one")}

    made.use = use
    yield made
    made.end()


@pytest.fixture
def token(db):
    project = Project.objects.get(name="default")
    alice = User.objects.create_user("alice")
    Membership.objects.create(project=project, user=alice, role=Role.SUBMITTER)
    row = buckets.create(project, "ours", "alice", timezone.now())
    objects.put_object(project, row.name, "there", [b"bytes"], by="alice")
    return token_of(alice)


def talk(handler, method, path, token, body=b"", query=b""):
    """A connection, on which nothing was sent yet."""
    headers = [(b"host", b"testserver"), (b"authorization", f"Bearer {token}".encode())]
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query,
        "headers": [*headers, (b"content-length", str(len(body)).encode())],
    }
    return ApplicationCommunicator(handler, scope)


def begin(handler, method, path, token, body=b"", query=b""):
    """A request that was sent, and the task of its answer."""
    sent = talk(handler, method, path, token, body, query)

    async def answer():
        await sent.send_input({"type": "http.request", "body": body})
        status = (await sent.receive_output(120))["status"]
        while (await sent.receive_output(120)).get("more_body"):
            pass
        await sent.wait(120)
        return status

    return asyncio.create_task(answer())


def uploads(handler, token, number):
    return [
        begin(handler, "PUT", f"{B}/objects/new-{each}", token, f"bytes {each}".encode())
        for each in range(number)
    ]


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


@pytest.mark.django_db(transaction=True)
def test_pages_and_rest_answer_while_uploads_and_downloads_stand_still_in_the_storage(still, token):
    still.use()

    async def crowd():
        handler = ThreadedHandler()
        waiting = uploads(handler, token, AT_ONCE)
        await until(lambda: len(still.taken) >= STORAGE_THREADS)
        waiting += [
            begin(handler, "GET", f"{B}/objects/there", token, query=b"alt=media") for _ in range(AT_ONCE)
        ]
        await until(lambda: len(still.taken) >= 2 * STORAGE_THREADS)
        began = time.monotonic()
        quick = [begin(handler, "GET", "/login", token) for _ in range(5)]
        quick += [begin(handler, "GET", f"{B}/objects/there", token)]
        quick += [begin(handler, "GET", "/api/v1/account", token)]
        async with asyncio.timeout(USUAL_S):
            statuses = await asyncio.gather(*quick)
        took = time.monotonic() - began
        assert not any(task.done() for task in waiting)
        still.end()
        over = await asyncio.gather(*waiting)
        handler.close()
        return statuses, took, over

    assert AT_ONCE > THREADS
    statuses, took, over = asyncio.run(crowd())
    assert statuses == [200] * 7 and took < USUAL_S
    assert over == [503] * (2 * AT_ONCE), "each of them was told"
    assert list(StoredObject.objects.values_list("name", flat=True)) == ["there"]


@pytest.mark.django_db(transaction=True)
def test_an_upload_counts_until_it_is_stored(still, token, monkeypatch):
    """More than a process may have at once are refused, also while the storage stands still and nothing comes."""
    still.use()
    # Of one project, half as many.
    monkeypatch.setattr(large_requests, "MOST_AT_ONCE", 2 * (STORAGE_THREADS + 2))

    async def crowd():
        handler = ThreadedHandler()
        waiting = uploads(handler, token, STORAGE_THREADS + 2)
        try:
            await until(
                lambda: len(still.taken) >= STORAGE_THREADS and large_requests._open.total() == len(waiting)
            )
            refused = await asyncio.gather(*uploads(handler, token, 3))
            assert not any(task.done() for task in waiting)
        finally:
            still.end()
        await asyncio.gather(*waiting)
        handler.close()
        return refused

    assert asyncio.run(crowd()) == [503] * 3
    assert large_requests._open.total() == 0 and received() == []


@pytest.mark.django_db(transaction=True)
def test_a_client_that_is_gone_leaves_the_queue(still, token):
    still.use()

    async def crowd():
        handler = ThreadedHandler()
        waiting = uploads(handler, token, STORAGE_THREADS)
        await until(lambda: len(still.taken) >= STORAGE_THREADS)
        gone = [talk(handler, "PUT", f"{B}/objects/gone-{each}", token, b"bytes") for each in range(3)]
        for each in gone:
            await each.send_input({"type": "http.request", "body": b"bytes"})
        await until(lambda: len(received()) == STORAGE_THREADS + 3)
        try:
            for each in gone:
                await each.send_input({"type": "http.disconnect"})
            # `wait` would end what does not end by itself.
            await until(
                lambda: (len(received()), large_requests._open.total()) == (STORAGE_THREADS, STORAGE_THREADS)
            )
        finally:
            still.end()
        await asyncio.gather(*waiting, *(each.wait(60) for each in gone))
        handler.close()

    asyncio.run(crowd())
    assert large_requests._open.total() == 0 and received() == []


@pytest.mark.django_db(transaction=True)
def test_what_waits_for_the_storage_keeps_its_reservation(still, token, monkeypatch):
    """It waits for longer than the reservation of a file lasts whose sender has died."""
    still.use()
    monkeypatch.setattr(large_requests, "RENEWED_S", 0.05)
    project = Project.objects.get(name="default")
    quotas.set_limit(QuotaTarget(project), Metric.STORAGE_GB, "", 1.0, "root", timezone.now())
    soon = timezone.now() + timedelta(minutes=1)

    async def crowd():
        handler = ThreadedHandler()
        waiting = uploads(handler, token, STORAGE_THREADS)
        await until(lambda: len(still.taken) >= STORAGE_THREADS)
        waiting.append(begin(handler, "PUT", f"{B}/objects/large", token, bytes(2 * room.UNRESERVED)))
        try:
            await until(lambda: reservations().exists())
            await asked(lambda: reservations().update(until=soon))
            await until(lambda: reservations().filter(until__gt=soon).exists())
        finally:
            still.end()
        await asyncio.gather(*waiting)
        handler.close()

    asyncio.run(crowd())
    assert not reservations().exists(), "it was refused, so nothing is reserved"


def reservations():
    return Reservation.objects.all()


def received():
    return [path.name for path in storage.receiving_directory().iterdir()]


SHA = "a" * 64
READS = [
    ("GET", "/download/storage/v1/b/ours/o/x/y", ""),
    ("GET", "/storage/v1/b/ours/o/x/y", "alt=media"),
    ("GET", f"/api/v1/projects/default/artifacts/{SHA}/content", ""),
    ("GET", f"{B}/objects/x/y", "alt=media"),
    ("GET", "/api/v1/jobs/7/outputs/content", "path=x"),
    ("GET", f"/projects/default/storage/artifacts/{SHA}", ""),
    ("GET", "/projects/default/storage/b/ours/file/x/y", ""),
    ("GET", "/jobs/7/outputs/file", "path=x"),
    ("GET", "/jobs/7/outputs/image", "path=x"),
]
OTHERS = [
    ("GET", "/storage/v1/b/ours/o/x/y", ""),
    ("GET", f"{B}/objects/x/y", ""),
    ("GET", "/jobs/7/outputs/", ""),
    ("GET", "/projects/default/storage", ""),
    ("POST", f"/projects/default/storage/artifacts/{SHA}/delete", ""),
    ("GET", "/jobs/7/files/workerpool0-0", ""),
    ("POST", "/projects/default/storage/b/ours/upload", ""),
]


@pytest.mark.parametrize(
    ("method", "path", "query", "work"),
    [
        *((*each, Work.READS) for each in READS),
        *((*each, Work.NONE) for each in OTHERS),
        ("POST", "/storage/v1/b/ours/o/x/y/compose", "", Work.STORES),
    ],
)
def test_each_address_has_its_threads(method, path, query, work):
    try:
        resolve(path)
    except Http404:
        pytest.fail("there is no such address any more")
    asked = RequestFactory().generic(method, path, QUERY_STRING=query)
    assert work_of(asked) is work


def test_the_uploads_of_one_project_leave_places_to_the_others():
    """Each may have as many as it leaves free: however many one sends, others have a place."""
    with ExitStack() as places:

        def taken(share):
            count = 0
            while places.enter_context(large_requests.place(share)):
                count += 1
            return count

        most = large_requests.MOST_AT_ONCE
        assert [taken(share) for share in "abcd"] == [most // 2, most // 4, most // 8, most // 16]
        assert taken("a") == 0
    assert not large_requests._open
