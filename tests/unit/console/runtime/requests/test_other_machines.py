"""Requests that wait for a machine elsewhere which stands still (a login server, the host of a job): pages and REST
answer as usual, and who waits is bounded."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import paramiko
import pytest
from django.conf import settings

from agents.ssh import dial, keys
from agents.ssh import files as ssh_files
from console.auth.login import oidc_server
from console.runtime.requests import asgi_handler
from console.runtime.requests.asgi_handler import ThreadedHandler
from jobs.outputs import work_directories
from tests.unit.console.runtime.requests.requests_at_once import StillServer, begin, talk, until
from tests.unit.console.script_tokens import token_of
from tests.unit.console.views.conftest import cast, project
from tests.unit.console.views.example_rows import a_host, a_job

__all__ = ["cast", "project"]

AT_ONCE = 40
# A request needs some tens of milliseconds, on a machine that may be busy.
USUAL_S = 5.0
CSRF = b"x" * 32
FORM = (
    (b"content-type", b"application/x-www-form-urlencoded"),
    (b"cookie", settings.CSRF_COOKIE_NAME.encode() + b"=" + CSRF),
)


@pytest.fixture(autouse=True)
def few_threads(monkeypatch):
    """All other requests have fewer threads than one client has places: who waits must not wait in them."""
    monkeypatch.setattr(asgi_handler, "THREADS", 2)


@pytest.fixture
def still(settings):
    settings.ALLOWED_HOSTS = ["*"]
    made = StillServer()
    yield made
    made.end()


@pytest.fixture
def silent(monkeypatch, settings):
    """A name server that does not answer. Numeric addresses need none."""
    settings.ALLOWED_HOSTS = ["*"]
    real, asked, answered = socket.getaddrinfo, threading.Event(), threading.Event()

    def wait_for_it(host, port, *args, flags=0, type=0, **options):
        if not flags & socket.AI_NUMERICHOST:
            asked.set()
            answered.wait(30)
        return real(host, port, *args, flags=flags | socket.AI_NUMERICHOST, type=type, **options)

    monkeypatch.setattr(socket, "getaddrinfo", wait_for_it)
    yield SimpleNamespace(is_asked=asked.is_set, end=answered.set)
    answered.set()


@pytest.fixture
def log_in_at(monkeypatch):
    """log_in_at(address): the login server is there."""

    def use(address):
        here = replace(settings.TRAINYARD, oidc_url=address, oidc_client_id="trainyard")
        monkeypatch.setattr(settings, "TRAINYARD", here)
        # On a busy machine, it must not have failed before the others were answered.
        monkeypatch.setattr(oidc_server, "WITHIN_S", 60)

    return use


def press_log_in(handler, number=AT_ONCE):
    body = b"csrfmiddlewaretoken=" + CSRF
    return [begin(handler, "POST", "/login/oidc", body=body, headers=FORM) for _ in range(number)]


async def others(handler, token=""):
    """The statuses of what people ask for meanwhile, all within the usual time."""
    asked = [begin(handler, "GET", "/login") for _ in range(5)]
    if token:
        asked.append(begin(handler, "GET", "/api/v1/account", token))
    async with asyncio.timeout(USUAL_S):
        return await asyncio.gather(*asked)


def beside(crowd, release, is_waiting, places, token=""):
    """The statuses of what others ask while `crowd` waits, those of its requests without a place, and all of its."""

    async def act():
        handler = ThreadedHandler()
        waiting = crowd(handler)
        try:
            await until(is_waiting)
            try:
                statuses = await others(handler, token)
            except TimeoutError:
                statuses = []
            await until(lambda: sum(task.done() for task in waiting) >= AT_ONCE - places)
            known = [task.result() for task in waiting if task.done()]
        finally:
            release()
        over = await asyncio.gather(*waiting)
        handler.close()
        return statuses, known, over

    return asyncio.run(act())


@pytest.mark.django_db(transaction=True)
def test_pages_answer_while_the_login_server_stands_still(still, log_in_at):
    log_in_at(f"http://127.0.0.1:{still.port}")
    statuses, known, over = beside(press_log_in, still.end, lambda: still.taken, oidc_server.places.most // 2)
    assert statuses == [200] * 5
    assert set(known) == {503}, "who finds no place is told so at once"
    assert set(over) == {502, 503}, "the others when the server has failed"


@pytest.mark.django_db(transaction=True)
def test_pages_answer_while_no_name_server_answers_a_login(silent, log_in_at):
    log_in_at("http://login.example")
    places = oidc_server.places.most // 2
    statuses, known, over = beside(press_log_in, silent.end, silent.is_asked, places)
    assert statuses == [200] * 5 and set(known) == {503} and set(over) == {502, 503}


@pytest.mark.django_db(transaction=True)
def test_a_login_waits_once_for_everything(silent, log_in_at, monkeypatch):
    """One deadline for the look-up of the name and all that follows; the next logins are told at once."""
    log_in_at("http://login.example")
    monkeypatch.setattr(oidc_server, "WITHIN_S", 0.5)

    async def act():
        handler = ThreadedHandler()
        began = time.monotonic()
        first = await asyncio.gather(*press_log_in(handler, 8))
        last = await asyncio.gather(*press_log_in(handler, 4))
        handler.close()
        return first, last, time.monotonic() - began

    first, last, took = asyncio.run(act())
    assert first == [502] * 8 and last == [502] * 4
    assert took < 10.0, "not one after the other"


@pytest.fixture
def files(cast, project, still, monkeypatch):
    """The address of the files of a job whose host takes connections and says nothing."""
    key = paramiko.ECDSAKey.generate()
    monkeypatch.setattr(keys, "private_key", lambda: key)
    # On a busy machine, it must not have failed before the others were answered.
    monkeypatch.setattr(ssh_files, "WITHIN_S", 60)
    monkeypatch.setattr(dial, "HANDSHAKE_S", 60)
    job = a_job(project, cast.bob, host=a_host(address="127.0.0.1", port=still.port))
    return f"/api/v1/jobs/{job.pk}/replicas/workerpool0-0/files"


@pytest.mark.django_db(transaction=True)
def test_pages_and_rest_answer_while_a_host_gives_no_files(still, files, cast):
    token = token_of(cast.bob)

    def ask_for_files(handler):
        return [begin(handler, "GET", files, token) for _ in range(AT_ONCE)]

    statuses, known, over = beside(
        ask_for_files, still.end, lambda: still.taken, work_directories.dials.most // 2, token
    )
    assert statuses == [200] * 6
    assert set(known) == {503}, "one person does not take every place"
    assert set(over) == {400, 503}


class EndlessFile:
    """A file of which a part comes as often as it is asked for."""

    size = 1 << 40

    def __init__(self):
        self.closed = threading.Event()

    def parts(self):
        while not self.closed.is_set():
            yield b"bytes" * 1000

    def close(self):
        self.closed.set()


@pytest.mark.django_db(transaction=True)
def test_a_download_whose_client_has_gone_leaves_its_place(files, cast, monkeypatch):
    sent = EndlessFile()
    monkeypatch.setattr(ssh_files, "open_file", lambda *given: sent)

    async def act():
        handler = ThreadedHandler()
        client = talk(handler, "GET", f"{files}/content", token_of_bob, query=b"path=x")
        await client.send_input({"type": "http.request", "body": b""})
        status = (await client.receive_output(60))["status"]
        assert (await client.receive_output(60))["body"]
        held = work_directories.transfers.total()
        await client.send_input({"type": "http.disconnect"})
        await until(sent.closed.is_set)
        await client.wait(60)
        handler.close()
        return status, held

    token_of_bob = token_of(cast.bob)
    assert asyncio.run(act()) == (200, 1)
    assert work_directories.transfers.total() == work_directories.dials.total() == 0
