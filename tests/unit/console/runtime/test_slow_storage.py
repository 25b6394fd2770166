"""Stored files are in a storage elsewhere that stands still: pages and REST answer as usual."""

from __future__ import annotations

import asyncio
import socket
import threading
import time

import pytest
from asgiref.testing import ApplicationCommunicator
from django.contrib.auth.models import User
from django.http import Http404
from django.test import RequestFactory
from django.urls import resolve
from django.utils import timezone

from console import environment
from console.runtime import backend_settings
from console.runtime.asgi_handler import STORAGE_THREADS, THREADS, ThreadedHandler
from console.runtime.storage_requests import Work, work_of
from jobs.artifacts import buckets, objects
from jobs.models import Membership, Project, Role, StoredObject
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


def begin(handler, method, path, token, body=b"", query=b""):
    """A request that was sent, and the task of its answer."""
    headers = [(b"host", b"testserver"), (b"authorization", f"Bearer {token}".encode())]
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query,
        "headers": [*headers, (b"content-length", str(len(body)).encode())],
    }
    talk = ApplicationCommunicator(handler, scope)

    async def answer():
        await talk.send_input({"type": "http.request", "body": body})
        status = (await talk.receive_output(120))["status"]
        while (await talk.receive_output(120)).get("more_body"):
            pass
        await talk.wait(120)
        return status

    return asyncio.create_task(answer())


async def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.02)


@pytest.mark.django_db(transaction=True)
def test_pages_and_rest_answer_while_uploads_and_downloads_stand_still_in_the_storage(still, token):
    still.use()

    async def crowd():
        handler = ThreadedHandler()
        waiting = [
            begin(handler, "PUT", f"{B}/objects/new-{number}", token, f"bytes {number}".encode())
            for number in range(AT_ONCE)
        ]
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
