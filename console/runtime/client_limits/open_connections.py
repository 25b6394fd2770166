"""Counts what a client has open in this web process, and refuses more than its share.

Counted for each address (an IPv6 network counts as one address), each session or token, and each person. A proxy's own
address is not counted: everybody would share it.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address

from console.auth.login.client_network import client_network

log = logging.getLogger(__name__)

# A flood must not fill the log as well: one line a kind and minute says how many there were.
REPORT_S = 60.0

Networks = tuple[IPv4Network | IPv6Network, ...]


class TooMany(Exception):
    """The client has as much open as it may. The message says of what, how much and the cure."""


class OpenConnections:
    """The counters of one kind: `limit` for each key."""

    def __init__(self, limit: int, words: str) -> None:
        self.limit = limit
        self.words = words
        self._open: Counter[object] = Counter()

    def take(self, key: object) -> None:
        """Count one more. Raises TooMany, and counts nothing, when the key has its limit."""
        if self._open[key] >= self.limit:
            report_refusals(f"more than {self.limit} connections of {self.words}", key)
            raise TooMany(
                f"{self.words[0].upper()}{self.words[1:]} may have {self.limit} connections. Close some."
            )
        self._open[key] += 1

    def give_back(self, key: object) -> None:
        self._open[key] -= 1
        if not self._open[key]:
            del self._open[key]

    @contextmanager
    def holding(self, key: object) -> Iterator[None]:
        self.take(key)
        try:
            yield
        finally:
            self.give_back(key)

    def __len__(self) -> int:
        return sum(self._open.values())


class Refusals:
    """How often something was refused since the last line in the log about it."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._next: dict[str, float] = {}

    def report(self, what: str, example: object) -> None:
        self._counts[what] += 1
        now = time.monotonic()
        if now >= self._next.get(what, 0.0):
            log.warning("Refused: %s (%s times; the last: %s).", what, self._counts.pop(what), example)
            self._next[what] = now + REPORT_S


_refusals = Refusals()
report_refusals = _refusals.report


class Proxies:
    """The addresses that proxies connect from."""

    def __init__(self, networks: Networks) -> None:
        self._networks = networks
        self._known = lru_cache(maxsize=4096)(self._find)

    def counted(self, address: str) -> str:
        """The key under which a client is counted. Empty for a proxy, and for a client without an address."""
        return self._known(address) if len(address) < 100 else address[:100]

    def _find(self, address: str) -> str:
        try:
            found = ip_address(address.partition("%")[0])
        except ValueError:
            return ""
        if any(found.version == network.version and found in network for network in self._networks):
            return ""
        return client_network(address)
