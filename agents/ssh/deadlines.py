"""Ends what waits for another machine over SSH: one request of a channel, or whatever a connection is used for."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

import paramiko

from agents.ssh.sockets import CONNECTION_ERRORS


class Closable(Protocol):
    def close(self) -> None: ...


@contextmanager
def of_request(channel: paramiko.Channel, seconds: float) -> Iterator[None]:
    """Put a deadline on a request of a channel: raises one of CONNECTION_ERRORS when sshd does not answer it.

    paramiko would wait for the answer for ever, and it is not woken if the connection ends as it begins to wait.
    """

    def give_up() -> None:
        with suppress(*CONNECTION_ERRORS):  # the connection may end at this very moment
            channel.close()
        channel.event.set()

    with _calling(give_up, seconds):
        yield


@contextmanager
def closing_at(connection: Closable, until: float) -> Iterator[None]:
    """Close the connection at this time of the monotonic clock: whatever waits for it then ends with an error."""
    if until == math.inf:
        yield
        return
    with _calling(connection.close, max(0.0, until - time.monotonic())):
        yield


@contextmanager
def _calling(end: Callable[[], None], seconds: float) -> Iterator[None]:
    deadline = threading.Timer(seconds, end)
    deadline.daemon = True
    deadline.start()
    try:
        yield
    finally:
        deadline.cancel()
