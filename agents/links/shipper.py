"""Ships files to the caches of hosts: a few at a time, each file to a host once, until it is there or not wanted.

It knows nothing of what the files are for. `want` says which files should be on which hosts; whatever is not wanted
any more is given up, whatever failed is tried again. All shippings of this process share one rate (ssh/put.py), and
those to one host have a pace that keeps its small frames quick (pace.py).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from agents.links.pace import Pace
from agents.ssh.dial import DialError
from agents.ssh.put import Blob, PutRefused, PutStopped, Rate
from agents.ssh.put_apart import put
from agents.ssh.targets import Target

log = logging.getLogger(__name__)

THREADS = 4
# How long a shipping that failed waits before it is tried again, at first and at most.
WAIT_S, MAX_WAIT_S = 1.0, 30.0
IDLE_S = 5.0


@dataclass(frozen=True)
class Shipment:
    """One file for one host. `read` gives its bytes from an offset on; it is called in a thread of the shipper."""

    host_id: int
    target: Target
    blob: Blob
    read: Callable[[int], Iterator[bytes]]

    @property
    def name(self) -> tuple[int, str]:
        return self.host_id, self.blob.sha256


@dataclass
class _Work:
    shipment: Shipment
    busy: bool = False
    failures: int = 0
    not_before: float = 0.0
    wanted: bool = True


class Shipper:
    """`want` may be called as often as one likes. `shipped` and `failed` are called from the shipper's threads. `key`
    gives the text of the private key. `delay` tells how long a small frame to a host and back takes now (pace.py)."""

    def __init__(
        self,
        key: Callable[[], str],
        deployment: str,
        rate: Rate,
        shipped: Callable[[Shipment], None] = lambda shipment: None,
        failed: Callable[[Shipment, DialError], None] = lambda shipment, error: None,
        threads: int = THREADS,
        delay: Callable[[int], float | None] = lambda host_id: None,
    ) -> None:
        self._key, self._deployment, self._rate = key, deployment, rate
        self._shipped, self._failed = shipped, failed
        self._delay = delay
        self._paces: dict[int, Pace] = {}
        self._work: dict[tuple[int, str], _Work] = {}
        self._changed = threading.Condition()
        self._stopping = False
        self._threads = [
            threading.Thread(target=self._run, name=f"shipper {number}", daemon=True)
            for number in range(threads)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Give up what is under way. What has arrived stays on its host: the next shipper goes on behind it."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.1, deadline - time.monotonic()))

    def want(self, shipments: Iterable[Shipment]) -> None:
        """Ship these, and nothing else from now on."""
        asked = {shipment.name: shipment for shipment in shipments}
        with self._changed:
            for name, work in list(self._work.items()):
                if name not in asked:
                    work.wanted = False
                    del self._work[name]
            for name, shipment in asked.items():
                self._work.setdefault(name, _Work(shipment)).shipment = shipment
            self._changed.notify_all()

    def under_way(self) -> int:
        return len(self._work)

    def _run(self) -> None:
        while (work := self._next()) is not None:
            try:
                self._ship(work)
            except Exception:
                log.exception("A file could not be shipped to %s.", work.shipment.target.name)
                self._retry(work)

    def _next(self) -> _Work | None:
        """Wait for something to ship. At most one file at a time goes to a host: they would only share its disk."""
        with self._changed:
            while not self._stopping:
                now = time.monotonic()
                busy = {work.shipment.host_id for work in self._work.values() if work.busy}
                free = [
                    work
                    for work in self._work.values()
                    if not work.busy and work.shipment.host_id not in busy
                ]
                due = min(free, key=lambda work: work.not_before, default=None)
                if due is not None and due.not_before <= now:
                    due.busy = True
                    return due
                self._changed.wait(IDLE_S if due is None else min(IDLE_S, due.not_before - now))
            return None

    def _ship(self, work: _Work) -> None:
        shipment = work.shipment

        def progress(done: int) -> None:
            if self._stopping or not work.wanted:
                raise PutStopped

        try:
            put(
                shipment.target,
                self._key(),
                self._deployment,
                shipment.blob,
                shipment.read,
                self._pace(shipment.host_id),
                progress,
            )
        except PutStopped:
            work.busy = False
            return
        except DialError as error:
            self._retry(work, error)
            return
        with self._changed:
            if self._work.get(shipment.name) is work:
                del self._work[shipment.name]
            self._changed.notify_all()
        self._shipped(shipment)

    def _pace(self, host_id: int) -> Pace:
        """That of the last shipping to this host: it goes on as fast as it went."""
        return self._paces.setdefault(host_id, Pace(self._rate, lambda: self._delay(host_id)))

    def _retry(self, work: _Work, error: DialError | None = None) -> None:
        with self._changed:
            work.busy = False
            work.not_before = time.monotonic() + min(MAX_WAIT_S, WAIT_S * 2**work.failures)
            # A connection that was cut goes on where it ended: that is no reason to wait longer each time.
            cut = isinstance(error, PutRefused) and error.reason == "cut"
            work.failures = min(10, work.failures + (0 if cut else 1))
            self._changed.notify_all()
        if error is not None and work.wanted:
            log.info("%s has not taken a file yet: %s", work.shipment.target.name, error)
            self._failed(work.shipment, error)
