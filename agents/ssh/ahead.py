"""Connections that are made ahead: while the page of a shell loads, its host is dialled and the runner started there.

Dialling and starting take longer than all the rest that a page with a terminal waits for. Whoever asks for the page
may open a shell on this host, so the connection waits for them for a while. It is used once. No shell is opened by it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress

import paramiko

from agents.runner.wire import WireError
from agents.ssh.dial import DialError
from agents.ssh.modes import Begun
from agents.ssh.sockets import CONNECTION_ERRORS
from agents.ssh.targets import Target

log = logging.getLogger(__name__)

KEPT_S = 10.0
# So many wait at most: pages that nobody follows up must not keep many hosts busy.
MOST = 16

Place = tuple[Target, bytes, str]
Make = Callable[[Target, paramiko.PKey, str], Begun]


class _Ahead:
    """One connection, with the thread that makes it, and that closes it if nobody comes."""

    def __init__(self, target: Target, key: paramiko.PKey, mode: str, make: Make) -> None:
        self._place, self._made, self._taken = _place(target, key, mode), threading.Event(), threading.Event()
        self._begun: Begun | None = None
        threading.Thread(target=self._run, args=(target, key, mode, make), name="ahead", daemon=True).start()

    def take(self) -> Begun | None:
        """The connection; None if it could not be made, or has ended. Waits while it is being made."""
        self._taken.set()
        self._made.wait()
        if self._begun is not None and not self._begun.is_alive:
            self._begun.connection.close()
            return None
        return self._begun

    def _run(self, target: Target, key: paramiko.PKey, mode: str, make: Make) -> None:
        try:
            self._begun = make(target, key, mode)
        except (DialError, WireError, *CONNECTION_ERRORS) as problem:
            # Whoever opens a shell dials again, and is told.
            log.debug("No connection to %s was made ahead: %s", target.name, problem)
        finally:
            self._made.set()
        if not self._taken.wait(KEPT_S if self._begun else 0) and _forget(self._place, self) and self._begun:
            with suppress(*CONNECTION_ERRORS):
                self._begun.connection.close()


_lock = threading.Lock()
_waiting: dict[Place, _Ahead] = {}


def prepare(target: Target, key: paramiko.PKey, mode: str, make: Make) -> None:
    """Begin to make a connection on which this mode waits, in a thread of its own. The caller has checked that the
    person may have a shell."""
    place = _place(target, key, mode)
    with _lock:
        if place not in _waiting and len(_waiting) < MOST:
            _waiting[place] = _Ahead(target, key, mode, make)


def take(target: Target, key: paramiko.PKey, mode: str) -> Begun | None:
    """The connection that was made ahead; None if there is none that can be used."""
    with _lock:
        found = _waiting.pop(_place(target, key, mode), None)
    return found.take() if found else None


def _forget(place: Place, ahead: _Ahead) -> bool:
    """Whether nobody has taken it; nobody will."""
    with _lock:
        return _waiting.get(place) is ahead and _waiting.pop(place) is ahead


def _place(target: Target, key: paramiko.PKey, mode: str) -> Place:
    """A host with all by which it is dialled: after a change of its address or of its key, it is another place."""
    return target, key.asbytes(), mode
