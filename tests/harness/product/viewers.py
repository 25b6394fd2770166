"""Clients of the product's sockets: a viewer of a log, and a terminal."""

from __future__ import annotations

import contextlib
import json
import time

from websockets.exceptions import WebSocketException

from tests.harness.wait_and_processes import PATIENCE_S


class LogReader:
    """A viewer of one log: keeps what it got, by run, acknowledges it, and reconnects at its cursor after a cut."""

    def __init__(self, client, job_id, replica, where):
        self.client = client
        self.path = f"/ws/jobs/{job_id}/log/{replica}"
        self.where = where
        self.run = None
        self.cursor = 0
        self.taken = 0
        self.bytes = {}
        self.headers = []
        self.socket = None

    def connect(self):
        self.socket = self.client.socket(self.path)
        self.taken = 0
        place = {"run": self.run, "from": self.cursor} if self.run else self.where
        self.socket.send(json.dumps(place))

    def receive(self, timeout=1.0):
        """Take one message, reconnecting if needed. Return False when none came in time."""
        try:
            if self.socket is None:
                self.connect()
            self.take(self.socket.recv(timeout=timeout))
            return True
        except TimeoutError:
            return False
        except (OSError, WebSocketException):
            # Refused, reset or closed: the web process is down for a moment.
            self.close()
            time.sleep(0.1)
            return False

    def take(self, message):
        if isinstance(message, bytes):
            self.bytes[self.run] = self.bytes.get(self.run, b"") + message
            self.cursor += len(message)
            self.taken += len(message)
            self.socket.send(json.dumps({"ack": self.taken}))
            return
        header = json.loads(message)
        if "beat" in header:
            return
        self.headers.append(header)
        if "gap" in header:
            self.cursor = header["to"]
        elif "run" in header:
            self.run, self.cursor = header["run"], header["at"]

    def read_until(self, condition, what, timeout=PATIENCE_S):
        """Take messages until condition(self) holds."""
        deadline = time.monotonic() + timeout
        while not condition(self):
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"the viewer waited {timeout:.0f} s in vain for {what}: {self.headers[-2:]}"
                )
            self.receive(timeout=0.5)
        return self

    def read_on(self, what):
        """Take messages until there is more text than before."""
        size = len(self.text())
        return self.read_until(lambda seen: len(seen.text()) > size, what)

    def text(self):
        return b"".join(self.bytes.values())

    def close(self):
        if self.socket is not None:
            with contextlib.suppress(OSError):
                self.socket.close()
            self.socket = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Shell:
    """A terminal that acknowledges what it takes, unless it is told not to."""

    def __init__(self, socket, cols, rows):
        self.socket = socket
        self.taken = 0
        self.screen = self.seen = b""
        socket.send(json.dumps({"resize": [cols, rows]}))

    def wait_until_open(self):
        """Wait for "ready": from then on the socket takes keys."""
        while '"ready"' not in self.receive(PATIENCE_S):
            pass
        return self

    def receive(self, timeout, acknowledge=True):
        """Return a text message, or "" for bytes, which go to the screen."""
        message = self.socket.recv(timeout=timeout)
        if isinstance(message, str):
            return message
        self.taken += len(message)
        self.screen = self.screen[-200_000:] + message
        if acknowledge:
            self.socket.send(json.dumps({"ack": self.taken}))
        return ""

    def type(self, text):
        self.socket.send(text.encode())

    def read_until(self, text):
        """Read until the text is on the screen. The terminal breaks lines, so line breaks do not count."""
        while text.encode() not in self.screen.replace(b"\r\n", b""):
            self.receive(PATIENCE_S)
        self.seen, self.screen = self.screen.replace(b"\r\n", b"\n"), b""

    def say(self, line, expected):
        self.type(line + "\n")
        self.read_until(expected)

    def take_lazily(self):
        """Count the bytes that come without acknowledgement, until a second has none; then acknowledge them."""
        before = self.taken
        with contextlib.suppress(TimeoutError):
            while True:
                self.receive(1.0, acknowledge=False)
        self.socket.send(json.dumps({"ack": self.taken}))
        return self.taken - before

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
