"""Strangers at the port: what they send and keep open is limited, and nobody else notices them.

Against the product itself, and through nginx and haproxy. Each test attacks from an address of its own in 127.0.0.0/8.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from pathlib import Path

import pytest
import requests
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from tests.harness.product import Product
from tests.harness.proxies import Haproxy, Nginx, free_port
from tests.harness.wait_and_processes import wait_for

MIB = 1024 * 1024
HEADER_S, BODY_S = 2, 4
ADDRESS, SESSION, PERSON = 10, 6, 8
WAYS = ("direct", "nginx", "haproxy")


@pytest.fixture(scope="module")
def front():
    """The product with small limits, and both proxies in front of it."""
    with contextlib.ExitStack() as held:
        port = free_port()
        nginx, haproxy = Nginx(port), Haproxy(port)
        for proxy in (nginx, haproxy):
            held.callback(proxy.close)
            proxy.start()
        limits = {"ADDRESS": ADDRESS, "SESSION": SESSION, "PERSON": PERSON}
        limits = {f"{name}_CONNECTIONS": number for name, number in limits.items()}
        product = Product("embedded", URL=nginx.url, HEADER_S=HEADER_S, BODY_S=BODY_S, **limits)
        product.url = f"http://127.0.0.1:{port}"
        held.enter_context(product)
        product.with_admin()
        product.ports = {"direct": port, "nginx": nginx.port, "haproxy": haproxy.port}
        (product.web,) = product.processes.of("web")
        wait_for(lambda: healthy(product), "everything to be well", dump=product.tail)
        yield product


def healthy(front, way="direct"):
    return requests.get(f"http://127.0.0.1:{front.ports[way]}/healthz", timeout=30).ok


def memory(front):
    status = Path(f"/proc/{front.web}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def disk(front):
    """What the web process has in files, deleted ones too, and in the data directory."""
    found = 0
    for link in Path(f"/proc/{front.web}/fd").iterdir():
        with contextlib.suppress(OSError):
            found += link.stat().st_size if link.is_file() or "(deleted)" in str(link.readlink()) else 0
    return found / MIB


def dial(front, way, source):
    client = socket.create_connection(("127.0.0.1", front.ports[way]), 30, (source, 0))
    client.settimeout(30)
    return client


def flood(front, way, begin, piece):
    """Send `begin`, then `piece` again and again, 60 MiB. Returns the answer's status, and how much was taken."""
    sent = 0
    with dial(front, way, "127.0.0.2") as client:
        with contextlib.suppress(OSError):
            client.sendall(begin)
            while sent < 60 * MIB:
                client.sendall(piece)
                sent += len(piece)
        return status(client), sent


def status(client):
    got = b""
    with contextlib.suppress(OSError):
        while b"\r\n" not in got and (part := client.recv(65536)):
            got += part
    return int(got.split()[1]) if got else 0


CHUNKED = b"POST /nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
FLOODS = {
    "headers": (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n", b"".join(b"x-%d: y\r\n" % n for n in range(5000))),
    "one header": (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nx: ", b"y" * 65536),
    "one address": (b"GET /", b"y" * 65536),
    "trailers": (CHUNKED + b"0\r\n", b"".join(b"x-%d: y\r\n" % n for n in range(5000))),
    "one trailer": (CHUNKED + b"0\r\nx: ", b"y" * 65536),
    "chunk extensions": (CHUNKED + b"5;", b"y" * 65536),
    "chunks": (CHUNKED, b"10000\r\n" + b"y" * 65536 + b"\r\n"),
    "a body": (
        b"POST /nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000000\r\n\r\n",
        b"y" * 65536,
    ),
}


# nginx and haproxy read these themselves, and wait for the rest by their own clocks.
DIRECT_ONLY = {"trailers", "one trailer", "chunk extensions"}
ATTACKS = [(kind, way) for kind in FLOODS for way in WAYS if way == "direct" or kind not in DIRECT_ONLY]


@pytest.mark.parametrize(("kind", "way"), ATTACKS)
def test_a_flood_is_refused_before_it_is_kept(front, way, kind):
    before, stored, began = memory(front), disk(front), time.monotonic()
    found = [flood(front, way, *FLOODS[kind]) for _ in range(4)]
    assert memory(front) - before < 40 and disk(front) - stored < 9 * 4
    assert time.monotonic() - began < 30, "web works on a flood for seconds"
    if way == "direct":
        for answer, taken in found:
            # What a body may have, what is dropped of the rest, twice, and what the kernel holds at both ends.
            assert answer in (413, 431) and taken < (8 + 16 + 16 + 12) * MIB
    else:
        # A proxy may swallow the rest of what it has refused.
        assert all(answer >= 400 or answer == 0 for answer, _ in found)
    assert healthy(front, way)


def test_a_body_that_is_announced_too_large_is_not_asked_for(front):
    with dial(front, "direct", "127.0.0.2") as client:
        client.sendall(
            b"POST /nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9000000\r\nExpect: 100-continue\r\n\r\n"
        )
        answer = client.recv(65536)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 413 ") and b"8388608 bytes" in body
    assert json.loads(body)["error"]["code"] == 413


def test_a_body_as_large_as_it_may_be_is_read(front):
    body = json.dumps({"displayName": "x" * (8 * MIB - 100)})
    headers = {
        "Authorization": front.client.session.headers["Authorization"],
        "Content-Type": "application/json",
    }
    answer = requests.post(front.client.jobs_url, body, headers=headers, timeout=60)
    assert answer.status_code == 400 and "custom_job" in answer.text or "display" in answer.text.lower()


HALVES = {
    "nothing": (b"", HEADER_S),
    "half a line": (b"GE", HEADER_S),
    "half the headers": (b"GET /healthz HTTP/1.1\r\nHost: x", HEADER_S),
    "half a body": (b"POST /nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\nabc", BODY_S),
    "half a second request": (
        b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /hea",
        HEADER_S,
    ),
}


@pytest.mark.parametrize("kind", HALVES)
def test_half_a_request_is_given_up_in_time(front, kind):
    sent, seconds = HALVES[kind]
    began = time.monotonic()
    with dial(front, "direct", "127.0.0.2") as client:
        client.sendall(sent)
        got = b""
        while part := client.recv(65536):
            got += part
    # uvicorn closes what is idle after an answer within 5 s.
    assert seconds - 0.5 < time.monotonic() - began < seconds + 15
    assert (b" 408 " in got) == (kind != "nothing")


def test_a_byte_now_and_then_does_not_keep_a_request_alive(front):
    began = time.monotonic()
    with dial(front, "direct", "127.0.0.2") as client, contextlib.suppress(OSError):
        while time.monotonic() - began < 60:
            client.sendall(b"G" if time.monotonic() == began else b"x")
            client.settimeout(0.2)
            with contextlib.suppress(TimeoutError):
                if not client.recv(65536):
                    break
    assert time.monotonic() - began < HEADER_S + 15


def test_an_address_has_its_share_of_connections_and_no_more(front):
    held = [dial(front, "direct", "127.0.0.3") for _ in range(ADDRESS)]
    try:
        with dial(front, "direct", "127.0.0.3") as more:
            assert status(more) == 429
        with dial(front, "direct", "127.0.0.4") as other:
            other.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert status(other) == 200, "another address has a share of its own"
        assert healthy(front), "a proxy's address has no limit: everybody comes from there"
    finally:
        for client in held:
            client.close()

    def free_again():
        with dial(front, "direct", "127.0.0.3") as client:
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            return status(client) == 200

    wait_for(free_again, "the share to be free again")


def opened(front, token, way="direct", source="127.0.0.1"):
    """Open a socket and wait for its first fragment. Returns it, or raises ConnectionClosed."""
    client = connect(
        f"ws://127.0.0.1:{front.ports[way]}/ws/jobs/",
        additional_headers={"Authorization": f"Bearer {token}"},
        source_address=(source, 0),
        open_timeout=60,
        proxy=None,
        legacy=True,
    )
    client.recv(timeout=60)
    return client


def tokens(front, name, number):
    if name not in front.command("user", "list").stdout:
        front.command("user", "add", name, "--password-stdin", stdin="correct horse battery staple\n")
    return [front.command("token", "create", name).stdout.strip() for _ in range(number)]


def fill(front, token, number, **how):
    return [opened(front, token, **how) for _ in range(number)]


def test_a_session_and_a_person_have_their_share_of_sockets(front):
    one, two = tokens(front, "bob", 2)
    (other,) = tokens(front, "eve", 1)
    held = fill(front, one, SESSION)
    try:
        with pytest.raises(ConnectionClosed) as refused:
            opened(front, one)
        assert refused.value.rcvd.code == 1013 and f"{SESSION} connections" in refused.value.rcvd.reason
        held += fill(front, two, PERSON - SESSION)
        with pytest.raises(ConnectionClosed) as refused:
            opened(front, two)
        assert refused.value.rcvd.code == 1013 and "One person" in refused.value.rcvd.reason
        opened(front, other).close()
    finally:
        for client in held:
            client.close()

    def free_again():
        with contextlib.suppress(ConnectionClosed):
            opened(front, one).close()
            return True

    wait_for(free_again, "the share to be free again")


@pytest.mark.parametrize("way", ["nginx", "haproxy"])
def test_behind_a_proxy_the_share_is_of_the_address_that_the_proxy_names(front, way):
    source, elsewhere = ("127.0.0.5", "127.0.0.6") if way == "nginx" else ("127.0.0.7", "127.0.0.8")
    (one,), (two,) = tokens(front, "mia", 1), tokens(front, "tom", 1)
    held = fill(front, one, 5, way=way, source=source) + fill(front, two, 5, way=way, source=source)
    try:
        with pytest.raises(ConnectionClosed) as refused:
            opened(front, two, way=way, source=source)
        assert refused.value.rcvd.code == 1013 and "One address" in refused.value.rcvd.reason
        opened(front, two, way=way, source=elsewhere).close()
    finally:
        for client in held:
            client.close()


def test_a_client_cannot_name_another_address_for_itself(front):
    """Only a proxy's word counts: a header of the client's own neither helps it nor harms the one it names."""
    held = [dial(front, "direct", "127.0.0.9") for _ in range(ADDRESS)]
    try:
        with dial(front, "direct", "127.0.0.9") as more:
            with contextlib.suppress(OSError):
                more.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Forwarded-For: 10.0.0.1\r\n\r\n")
            assert status(more) in (429, 0)
    finally:
        for client in held:
            client.close()


def test_strangers_sockets_are_refused_without_a_query(front):
    for path in ("/ws/jobs/", "/ws/hosts/", "/ws/nowhere"):
        with pytest.raises(InvalidStatus) as refused:
            connect(f"ws://127.0.0.1:{front.ports['direct']}{path}", proxy=None, open_timeout=60, legacy=True)
        assert refused.value.response.status_code == 403


def test_a_flood_is_a_line_in_the_log_and_not_a_line_for_each(front):
    before = front.output.read_text()
    for _ in range(30):
        with dial(front, "direct", "127.0.0.2") as client:
            client.sendall(b"\x16\x03\x01 no HTTP at all\r\n\r\n")
            assert status(client) == 400
    written = front.output.read_text()[len(before) :]
    assert written.count("cannot be understood") <= 2 and written.count("Invalid HTTP request received") <= 2
