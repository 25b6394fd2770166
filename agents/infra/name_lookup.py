"""The addresses of a foreign name, with a deadline.

The system's look-up has no deadline: with a name server that does not answer, it returns after 5 to 60 s, and a thread
that asks waits so long. Here a thread of its own asks, and who waits for it stops waiting at the deadline. Names that
people type are looked up where something is sent to them, never while their request is answered.
"""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import dataclass, field

# Threads that wait for a name server, in one process. Dispatchers dial up to some hundred hosts at the same time.
MAX_LOOKUPS = 256

_places = threading.BoundedSemaphore(MAX_LOOKUPS)


@dataclass(slots=True)
class _Lookup:
    done: threading.Event = field(default_factory=threading.Event)
    found: tuple[str, ...] = ()
    problem: Exception | None = None


def addresses(host: str, port: int, seconds: float) -> tuple[str, ...]:
    """All addresses of the host, at least one, in the order in which they should be tried.

    Raises OSError if the name is unknown or the name server does not answer in time, UnicodeError if it is no name.
    """
    if found := literal(host, port):
        return found
    until = time.monotonic() + seconds
    places = _places
    if not places.acquire(timeout=seconds):
        raise TimeoutError(f"{MAX_LOOKUPS} other names wait for the name server already")
    lookup = _Lookup()
    threading.Thread(
        target=_look_up, args=(host, port, lookup, places), name="name-lookup", daemon=True
    ).start()
    if not lookup.done.wait(max(0.0, until - time.monotonic())):
        raise TimeoutError(f"the name server has not answered for {seconds:g} s")
    if lookup.problem is not None:
        raise lookup.problem
    return lookup.found


def literal(host: str, port: int = 0) -> tuple[str, ...]:
    """The address if `host` is one, in any of its spellings (0x7f.1 too). Empty for a name. Asks no name server."""
    try:
        return _resolve(host, port, socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return ()


def _look_up(host: str, port: int, lookup: _Lookup, places: threading.BoundedSemaphore) -> None:
    try:
        lookup.found = _resolve(host, port)
    except Exception as problem:
        lookup.problem = problem
    finally:
        places.release()
        lookup.done.set()


def _resolve(host: str, port: int, flags: int = 0) -> tuple[str, ...]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return tuple(dict.fromkeys(str(each[4][0]) for each in found))
