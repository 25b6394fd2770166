"""Stored files are in a storage elsewhere that stands still: pages and REST answer as usual."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack, suppress
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.http import Http404
from django.test import RequestFactory
from django.urls import resolve
from django.utils import timezone

from agents.infra.places import AllTaken
from console import environment
from console.runtime import backend_settings
from console.runtime.requests import large_requests
from console.runtime.requests.asgi_handler import STORAGE_THREADS, THREADS, ThreadedHandler
from console.runtime.requests.waiting_requests import Work, work_of
from jobs.artifacts import buckets, objects, room, storage
from jobs.models import Membership, Project, Reservation, Role, StoredObject
from jobs.projects import quotas
from jobs.projects.quotas import QuotaTarget
from jobs.rules.scheduling.quota import Metric
from tests.harness.s3_server import S3Server
from tests.unit.console.runtime.requests.requests_at_once import StillServer, asked, begin, talk, until
from tests.unit.console.script_tokens import token_of

AT_ONCE = 20
# A request needs some tens of milliseconds, on a machine that may be busy.
USUAL_S = 5.0
B = "/api/v1/projects/default/buckets/ours"


@pytest.fixture
def still(settings, monkeypatch):
    made = StillServer()
    settings.ALLOWED_HOSTS = ["*"]
    for name, value in S3Server.credentials.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *args: 0)

    def use():
        url = f"s3://kept-files/lab?endpoint=http://127.0.0.1:{made.port}"
        here = environment.read(
            {"TRAINYARD_DATA": str(settings.TRAINYARD.data), "TRAINYARD_STORAGE_URL": url}
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


def uploads(handler, token, number):
    return [
        begin(handler, "PUT", f"{B}/objects/new-{each}", token, f"bytes {each}".encode())
        for each in range(number)
    ]


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
    monkeypatch.setattr(large_requests.places, "most", 2 * (STORAGE_THREADS + 2))

    async def crowd():
        handler = ThreadedHandler()
        waiting = uploads(handler, token, STORAGE_THREADS + 2)
        try:
            await until(
                lambda: len(still.taken) >= STORAGE_THREADS and large_requests.places.total() == len(waiting)
            )
            refused = await asyncio.gather(*uploads(handler, token, 3))
            assert not any(task.done() for task in waiting)
        finally:
            still.end()
        await asyncio.gather(*waiting)
        handler.close()
        return refused

    assert asyncio.run(crowd()) == [503] * 3
    assert large_requests.places.total() == 0 and received() == []


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
                lambda: (len(received()), large_requests.places.total()) == (STORAGE_THREADS, STORAGE_THREADS)
            )
        finally:
            still.end()
        await asyncio.gather(*waiting, *(each.wait(60) for each in gone))
        handler.close()

    asyncio.run(crowd())
    assert large_requests.places.total() == 0 and received() == []


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
LOGINS = [
    ("POST", "/login/oidc", ""),
    ("GET", "/login/oidc/callback", "code=x"),
    ("POST", "/account/oidc/connect", ""),
    ("POST", "/account/oidc/confirm", ""),
]
FETCHES = [
    ("GET", "/jobs/7/files/workerpool0-0", ""),
    ("GET", "/jobs/7/files/workerpool0-0/download", "path=x"),
    ("GET", "/api/v1/jobs/7/replicas/workerpool0-0/files", ""),
    ("GET", "/api/v1/jobs/7/replicas/workerpool0-0/files/content", "path=x"),
    ("POST", "/jobs/7/stacks", ""),
    ("POST", "/api/v1/jobs/7/stacks", ""),
    ("POST", "/hosts/7/edit", ""),
    ("PATCH", "/api/v1/hosts/gpu-7", ""),
]
OTHERS = [
    ("GET", "/jobs/7/stacks", ""),
    ("GET", "/hosts/7/edit", ""),
    ("GET", "/api/v1/hosts/gpu-7", ""),
    ("POST", "/api/v1/hosts/gpu-7:drain", ""),
    ("GET", "/storage/v1/b/ours/o/x/y", ""),
    ("GET", f"{B}/objects/x/y", ""),
    ("GET", "/jobs/7/outputs/", ""),
    ("GET", "/projects/default/storage", ""),
    ("POST", f"/projects/default/storage/artifacts/{SHA}/delete", ""),
    ("GET", "/login", ""),
    ("POST", "/account/oidc/disconnect", ""),
    ("GET", "/api/v1/jobs/7/outputs/files", ""),
    ("POST", "/projects/default/storage/b/ours/upload", ""),
]


@pytest.mark.parametrize(
    ("method", "path", "query", "work"),
    [
        *((*each, Work.READS) for each in READS),
        *((*each, Work.LOGS_IN) for each in LOGINS),
        *((*each, Work.FETCHES) for each in FETCHES),
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
            with suppress(AllTaken):
                while True:
                    places.enter_context(large_requests.places.place(share))
                    count += 1
            return count

        most = large_requests.MOST_AT_ONCE
        assert [taken(share) for share in "abcd"] == [most // 2, most // 4, most // 8, most // 16]
        assert taken("a") == 0
    assert large_requests.places.total() == 0
