"""Programs that connect to their peers, and programs that never do, as /proc shows them."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys

import pytest

from agents.runner.runs.peers import Peers, connected, peers_of
from agents.runner.runs.samples import process_tree
from tests.harness.wait_and_processes import wait_for

CONNECTS = (
    "import socket; s = socket.create_connection(('127.0.0.1', PORT)); print('up', flush=True); s.recv(1)"
)
ACCEPTS = """
import socket
server = socket.create_server(('127.0.0.1', PORT))
print('up', flush=True)
client, _ = server.accept()
client.recv(1)
"""
# As torchrun does on one node: a store of its own, and a client of it, here in another process.
ITSELF = """
import os, socket, time
server = socket.create_server(('127.0.0.1', PORT))
if os.fork() == 0:
    server.close()
    client = socket.create_connection(('127.0.0.1', PORT))
    client.recv(1)
    os._exit(0)
other, _ = server.accept()
print('up', flush=True)
time.sleep(600)
"""
ALONE = "import time; print('up', flush=True); time.sleep(600)"


@pytest.fixture
def peer():
    """A peer's program: a socket of this process, which is no process of the run."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@contextlib.contextmanager
def program(source, port=0):
    command = [sys.executable, "-c", source.replace("PORT", str(port))]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"up\n"
            yield process
        finally:
            process.kill()


def look(process, peers):
    return connected(process.pid, process_tree(process.pid), peers)


def peers(*ends, port=None, address="127.0.0.1"):
    return peers_of({"peers": list(ends), "port": port, "address": address})


def test_a_program_that_connects_to_a_peer_is_seen(peer):
    port = peer.getsockname()[1]
    with program(CONNECTS, port) as process:
        assert look(process, peers(f"127.0.0.1:{port}")) is True
        # A peer at another of its addresses is known by its port, and at another port by its address.
        assert look(process, peers(f"10.9.9.9:{port}")) is True
        assert look(process, peers("127.0.0.1:1")) is True
        # A service of the host that is no peer.
        assert look(process, peers("10.9.9.9:1", address="10.0.0.1")) is False


def test_a_program_that_a_peer_connects_to_is_seen():
    port = free_port()
    asked = peers("10.9.9.9:7001", port=port)
    with program(ACCEPTS, port) as process:
        assert look(process, asked) is False
        with socket.create_connection(("127.0.0.1", port)):
            wait_for(lambda: look(process, asked), "the connection to be seen")


@pytest.mark.parametrize("source", [ALONE, ITSELF])
def test_a_program_that_speaks_with_nobody_or_with_itself_is_alone(source):
    port = free_port()
    with program(source, port) as process:
        assert look(process, peers("127.0.0.1:7001", port=port)) is False


@pytest.mark.parametrize(
    ("order", "found"),
    [
        ({}, None),
        ({"peers": []}, None),
        ({"peers": "10.0.0.1:1"}, None),
        ({"peers": [None, 7, "nonsense", "10.0.0.1:x"]}, None),
        ({"peers": ["10.0.0.1:7000"], "port": 7001}, Peers({"10.0.0.1"}, {7000, 7001}, False)),
        ({"peers": ["[fd00:0::1]:7000"], "address": "fd00::1"}, Peers({"fd00::1"}, {7000}, True)),
        ({"peers": ["gpu-2.example:7000"], "port": "x"}, Peers(set(), {7000}, False)),
    ],
)
def test_an_order_says_who_the_peers_are(order, found):
    assert peers_of(order) == found


def test_a_process_that_has_ended_says_nothing():
    with program(ALONE) as process:
        process.kill()
        process.wait()
        assert connected(process.pid, [process.pid], peers("10.0.0.1:1")) is None
