"""While our own process stands still (SIGSTOP, a laptop's lid), no host is to blame for what we did not read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from agents.runner.wire import encode
from tests.harness.wait_and_processes import wait_for

# What a host is allowed in these tests, and for how much longer than that our process stands still.
PATIENCE_S = 4.0
STILL_S = 2.5 * PATIENCE_S
PROGRAM = f"""
import django
django.setup()
from tests.unit.agents.links.listening_process import listen
listen({PATIENCE_S})
"""
PREFACE = b"TRAINYARD-RUNNER 1\n"
HELLO = encode({"t": "hello", "v": 1, "boot_id": "b", "sha": "s", "wall": 1.8e9})
INVENTORY = encode({"t": "inventory", "runs": [], "last": True})
PONG = encode({"t": "pong", "id": 1})


class Listener:
    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self.lines = []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line.decode().strip())

    def send(self, *parts):
        self.process.stdin.write(b"".join(parts))

    def said(self, what):
        wait_for(lambda: what in self.lines, f"{what!r} in {self.lines}", timeout=30)

    def stand_still(self):
        os.kill(self.process.pid, signal.SIGSTOP)
        time.sleep(STILL_S)

    def go_on(self):
        os.kill(self.process.pid, signal.SIGCONT)


@pytest.fixture
def listener():
    made = Listener()
    yield made
    made.process.kill()
    made.process.wait()
    made.process.stdin.close()
    made.reader.join(30)
    made.process.stdout.close()


def test_a_message_that_could_not_be_read_is_not_late(listener):
    listener.send(PREFACE, HELLO, INVENTORY, PONG[:5])
    listener.said("inventory")
    listener.stand_still()
    listener.send(PONG[5:7])
    listener.go_on()
    time.sleep(0.5)
    listener.send(PONG[7:])
    listener.said("pong")
    assert not [line for line in listener.lines if line.startswith(("given up", "ended"))], listener.lines


def test_a_greeting_that_could_not_be_read_is_not_late(listener):
    listener.send(PREFACE[:5])
    time.sleep(1.0)
    listener.stand_still()
    listener.go_on()
    time.sleep(0.5)
    listener.send(PREFACE[5:], HELLO)
    listener.said("hello")
    assert not [line for line in listener.lines if line.startswith(("given up", "ended"))], listener.lines


def test_a_message_that_stays_incomplete_while_we_listen_is_late(listener):
    listener.send(PREFACE, HELLO, INVENTORY, PONG[:5])
    listener.said("inventory")
    until = time.monotonic() + 2 * PATIENCE_S
    for byte in b"x" * 100:
        if time.monotonic() > until or any(line.startswith("given up") for line in listener.lines):
            break
        # The host is not silent: it answers, byte by byte.
        listener.send(bytes([byte]))
        time.sleep(0.2)
    wait_for(
        lambda: any("not complete" in line for line in listener.lines), f"the reason in {listener.lines}"
    )
