"""A dispatcher's end of one link as a process of its own, which a test can suspend: its host is the process's stdin.

`listen(SECONDS)` has so many seconds of patience for a message, for the greeting and for silence. It prints the type of
each frame, and why the link was given up. Django must be set up before this is imported.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from types import SimpleNamespace

from agents.hosts.seals import SealOwner
from agents.links import host_thread, link
from agents.links.fleet import Fleet
from agents.links.host_thread import FleetSettings, HostThread

SEAL_OWNER = SealOwner(1, "train", "ssh-ed25519 AAAA")


class StandardInput:
    """The channel of the link."""

    def recv(self, size):
        return os.read(0, size)

    def recv_stderr_ready(self):
        return False

    def sendall(self, data):
        pass

    def close(self):
        pass


def say(text):
    os.write(1, f"{text}\n".encode())


def listen(patience_s):
    link.MESSAGE_S = link.HELLO_S = patience_s
    link.open_session, link.start_command = lambda transport: StandardInput(), lambda *_: None
    host = HostThread.__new__(HostThread)
    host.target, host._settings = (
        SimpleNamespace(name="gpu01"),
        FleetSettings("d", tick_s=0.1, dead_s=patience_s),
    )
    host.lease, host._stopping = SimpleNamespace(good=lambda: True, token=1), False
    host._status_updates, host._compare_due, host._changing = deque(), False, False
    host._last_comparison_at, host._ticked_at = 1e12, host_thread.time.monotonic()
    host._work_queue = SimpleNamespace(enqueue=lambda *_: None)
    host.hang_up = lambda: say(f"given up: {host._link.misbehaviour or 'it is silent'}")
    host._report_failure = lambda *_: None
    transport = SimpleNamespace(misbehaviour="", close=lambda: None)
    host._link = link.Link(transport, "gpu01", {}, lambda: True, lambda seconds: None, SEAL_OWNER)
    fleet = Fleet.__new__(Fleet)
    fleet._settings, fleet._hosts, fleet._stopping = host._settings, {1: host}, threading.Event()
    threading.Thread(target=fleet._heartbeat, daemon=True).start()
    handle = host._link._handle

    def handled(message, payload, greeted):
        say(message["t"])
        return handle(message, payload, greeted)

    host._link._handle = handled
    try:
        host._link.listen(lambda hello: None)
    except Exception as problem:
        say(f"ended: {problem}")
