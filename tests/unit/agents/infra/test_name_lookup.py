"""Nobody waits for a name server longer than the deadline, and no number of such names uses up the threads."""

from __future__ import annotations

import socket
import threading
import time

import paramiko
import pytest

from agents.infra import name_lookup
from agents.ssh import pty
from agents.ssh.dial import Unreachable
from agents.ssh.targets import Target


@pytest.fixture
def silent(monkeypatch):
    """A name server that does not answer. Numeric addresses need none."""
    real, answered = socket.getaddrinfo, threading.Event()

    def wait_for_it(host, port, *args, flags=0, **options):
        if not flags & socket.AI_NUMERICHOST:
            answered.wait(30)
        return real(host, port, *args, flags=flags | socket.AI_NUMERICHOST, **options)

    monkeypatch.setattr(socket, "getaddrinfo", wait_for_it)
    yield answered
    answered.set()


def test_the_deadline_ends_the_wait(silent):
    began = time.monotonic()
    with pytest.raises(TimeoutError, match="has not answered for 0.2 s"):
        name_lookup.addresses("gpu.example", 22, 0.2)
    assert time.monotonic() - began < 5


def test_a_person_who_opens_a_shell_waits_less_for_a_name_than_a_link_does(silent, monkeypatch):
    """Web's own bound, not that of the dispatcher's links."""
    monkeypatch.setattr(pty, "LOOKUP_S", 0.2)
    target, key = Target("h", "gpu.example", 22, "train", ""), paramiko.ECDSAKey.generate()
    with pytest.raises(Unreachable, match="has not answered for 0.2 s"):
        pty.open_shell(target, key, {"shell": "s", "cols": 80, "rows": 24})


@pytest.mark.parametrize(
    ("written", "address"), [("10.1.2.3", "10.1.2.3"), ("::1", "::1"), ("0x7f.1", "127.0.0.1")]
)
def test_an_address_needs_no_name_server(silent, written, address):
    assert name_lookup.addresses(written, 22, 0.2) == (address,) and name_lookup.literal("gpu.example") == ()


def test_names_that_wait_are_limited_and_their_threads_are_given_back(silent, monkeypatch):
    monkeypatch.setattr(name_lookup, "_places", threading.BoundedSemaphore(2))
    for expected in ("has not answered", "has not answered", "other names wait"):
        with pytest.raises(TimeoutError, match=expected):
            name_lookup.addresses("gpu.example", 22, 0.05)
    assert name_lookup.addresses("10.1.2.3", 22, 0.05), "an address does not wait"
    silent.set()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            name_lookup.addresses("gpu.example", 22, 5)
        except socket.gaierror:
            break
        except TimeoutError:
            time.sleep(0.01)
    else:
        raise AssertionError("the places are not given back")


def test_a_name_has_all_its_addresses():
    assert "127.0.0.1" in name_lookup.addresses("localhost", 22, 30)
