"""A script's end of a shell that its host keeps: it connects again, and sends again what was not acknowledged."""

from __future__ import annotations

import json
import secrets
import time
from contextlib import suppress

from websockets.exceptions import ConnectionClosed, WebSocketException

from tests.harness.wait_and_processes import wait_for

PIECE = 16 * 1024


class HeldShell:
    """`output` has each byte once: where a connection begins is checked against what the last one has brought."""

    def __init__(self, client, run, key=None, watch=False):
        self.client, self.key = client, key or secrets.token_hex(16)
        self.path = f"/ws/shells/{self.key}?run={run}" + "&watch=1" * watch
        self.name = secrets.token_hex(8)
        self.output, self.typed, self.taken = b"", b"", 0
        self.viewers, self.lost, self.over, self.connections = [], [], "", 0
        self.begin = self.acked = self.came = 0
        self.socket = None

    def connect(self, patience=60.0):
        wait_for(self._connected, "the shell to be open", patience, every=0.05)
        return self

    def _connected(self):
        try:
            self.socket = self.client.socket(self.path, open_timeout=5)
            hello = {
                "resize": [80, 24],
                "client": self.name,
                "from": self.begin + len(self.output) if self.output else None,
            }
            self.socket.send(json.dumps(hello))
            while "ready" not in (message := self._message(10)):
                if "closed" in message:
                    self.over = message["closed"]
        except (OSError, TimeoutError, WebSocketException):
            return False
        ready = message["ready"]
        if not self.output:
            self.begin = ready["at"]
        assert ready["at"] == self.begin + len(self.output) and not ready["lost"]
        self.taken, self.came, self.acked = ready["taken"], 0, 0
        self.connections += 1
        self._send(self.typed[self.taken :])
        return True

    def _message(self, timeout):
        message = self.socket.recv(timeout=timeout)
        if isinstance(message, bytes):
            self.output += message
            self.came += len(message)
            if self.came - self.acked >= 32 * 1024:
                self.acked = self.came
                self.socket.send(json.dumps({"ack": self.came}))
            return {}
        return json.loads(message)

    def step(self, timeout=0.05):
        """Take one message. Connect again if the connection has ended."""
        try:
            message = self._message(timeout)
        except TimeoutError:
            return
        except ConnectionClosed:
            if not self.over:
                self.connect()
            return
        self.taken = max(self.taken, message.get("took", 0))
        self.viewers = message.get("viewers", self.viewers)
        self.lost += [message["lost"]] if "lost" in message else []
        self.over = message.get("end", self.over)

    def type(self, data):
        self.typed += data
        self._send(data)
        return self

    def _send(self, data):
        # What does not go now is sent after the next connection was made.
        with suppress(OSError, ConnectionClosed):
            for at in range(0, len(data), PIECE):
                self.socket.send(data[at : at + PIECE])

    def until(self, condition, what, patience=90.0):
        deadline = time.monotonic() + patience
        while not condition(self):
            assert time.monotonic() < deadline, f"never came: {what}; {self.output[-300:]}, {self.over}"
            self.step()
        return self

    def seen(self, mark, patience=90.0):
        return self.until(lambda shell: mark in shell.output, f"{mark} on the screen", patience)

    def drop(self):
        """Hang up without a word, as a browser that is closed."""
        self.socket.socket.close()
        with suppress(OSError, WebSocketException):
            self.socket.close()
