"""One deadline for a question by HTTP, whatever the server does with the time, in the clear and by TLS."""

from __future__ import annotations

import http.client
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress
from types import SimpleNamespace

import pytest

from console.auth.login import timed_http

HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"
# A machine may be busy.
SOON_S = 5.0


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    place = tmp_path_factory.mktemp("tls")
    names = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
    made = ("-keyout", place / "key", "-out", place / "cert", *names)
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *made]
    subprocess.run(words, check=True, capture_output=True)
    return SimpleNamespace(cert=str(place / "cert"), key=str(place / "key"))


@pytest.fixture
def serve():
    """serve(answer, certificate): a server that takes one connection, and its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    over, threads = threading.Event(), []

    def start(answer, certificate=None):
        def act():
            with suppress(OSError):
                connection = listener.accept()[0]
                if certificate:
                    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                    context.load_cert_chain(certificate.cert, certificate.key)
                    connection = context.wrap_socket(connection, server_side=True)
                with connection:
                    connection.recv(65536)
                    answer(connection, over)

        threads.append(threading.Thread(target=act))
        threads[0].start()
        return f"http{'s' if certificate else ''}://localhost:{listener.getsockname()[1]}/x"

    yield start
    over.set()
    with suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    for each in threads:
        each.join()


def fetch(address, seconds=30.0):
    return timed_http.fetch(urllib.request.Request(address), time.monotonic() + seconds, 1 << 20)


def whole(connection, over):
    connection.sendall(HEAD + b"Content-Length: 4\r\n\r\ntrue")


def nothing(connection, over):
    over.wait()


def drop_by_drop(connection, over):
    """For twice as long as anybody waits here."""
    connection.sendall(HEAD + b"\r\n")
    until = time.monotonic() + 2 * SOON_S
    while time.monotonic() < until and not over.wait(0.05):
        connection.sendall(b" ")


def test_an_address_that_says_nothing_leaves_the_others_their_time(serve, monkeypatch):
    address, tried = serve(whole), []
    connect = socket.create_connection

    def dial(to, timeout):
        tried.append(timeout)
        if len(tried) == 1:
            raise TimeoutError
        return connect(("127.0.0.1", to[1]), timeout)

    monkeypatch.setattr(timed_http.name_lookup, "addresses", lambda *_: ["2001:db8::1", "127.0.0.1"])
    monkeypatch.setattr(timed_http.socket, "create_connection", dial)
    assert fetch(address, 20.0) == b"true"
    assert tried[0] <= 10 < tried[1]


def elsewhere(connection, over):
    connection.sendall(b"HTTP/1.1 302 Found\r\nLocation: http://localhost:1/\r\nContent-Length: 0\r\n\r\n")


@pytest.mark.parametrize("secure", [False, True], ids=["clear", "tls"])
def test_a_whole_answer_comes(serve, certificate, monkeypatch, secure):
    monkeypatch.setenv("SSL_CERT_FILE", certificate.cert)
    assert fetch(serve(whole, certificate if secure else None)) == b"true"


@pytest.mark.parametrize("secure", [False, True], ids=["clear", "tls"])
@pytest.mark.parametrize("answer", [nothing, drop_by_drop])
def test_the_deadline_ends_an_answer_that_does_not_end(serve, certificate, monkeypatch, secure, answer):
    monkeypatch.setenv("SSL_CERT_FILE", certificate.cert)
    address, began = serve(answer, certificate if secure else None), time.monotonic()
    with pytest.raises((OSError, http.client.HTTPException)):
        fetch(address, 0.5)
    assert time.monotonic() - began < SOON_S


def test_the_deadline_ends_a_handshake(certificate):
    with socket.create_server(("127.0.0.1", 0)) as still:
        began = time.monotonic()
        with pytest.raises(OSError):
            fetch(f"https://localhost:{still.getsockname()[1]}/x", 0.5)
    assert time.monotonic() - began < SOON_S


def test_a_certificate_that_nobody_trusts_is_refused(serve, certificate):
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        fetch(serve(whole, certificate))


def test_a_redirect_is_not_followed(serve):
    with pytest.raises(urllib.error.HTTPError) as refused:
        fetch(serve(elsewhere))
    assert refused.value.code == 302
    refused.value.close()
