"""Ships what hosts need for their preparations: archives and packages that jobs bring (agents/links/shipper.py)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator

from django.conf import settings
from django.utils import timezone

from agents.links.control_plane import PreparationName
from agents.links.fleet import link_delay
from agents.links.shipper import Shipment, Shipper
from agents.ssh import keys
from agents.ssh.dial import DialError
from agents.ssh.put import Blob as Bytes
from agents.ssh.put import PutRefused, Rate
from agents.ssh.targets import Target
from jobs.artifacts import blobs
from jobs.host_sync import prepared
from jobs.host_sync.database_connection import database_connection
from jobs.models import Blob, Preparation

log = logging.getLogger(__name__)
# What a host says of a disk that cannot take the file. Everything else is tried again.
_OF_THE_HOST = frozenset({"disk_full", "storage"})


class Shipping:
    """What this dispatcher ships. `failed` is called with a host when a shipping to it has failed for good."""

    def __init__(self, failed: Callable[[int], None]) -> None:
        self._tell_failed = failed
        self._lock = threading.Lock()
        self._names: dict[int, frozenset[PreparationName]] = {}
        self._shipments: dict[int, list[Shipment]] = {}
        self._shipper: Shipper | None = None

    def update(self, host_id: int, names: Collection[PreparationName]) -> None:
        """These preparations of the host are wanted and not over. Asks the database only when they have changed."""
        known = frozenset(names)
        with self._lock:
            if self._names.get(host_id, frozenset()) == known:
                return
            self._names[host_id] = known
            self._shipments[host_id] = shipments_of(host_id, known)
            wanted = [each for of_host in self._shipments.values() for each in of_host]
            if self._shipper is None and wanted:
                self._shipper = Shipper(
                    keys.private_text,
                    settings.DEPLOYMENT,
                    Rate(settings.TRAINYARD.ship_mb_s * 1e6),
                    failed=self._failed,
                    delay=link_delay,
                )
                self._shipper.start()
            if self._shipper is not None:
                self._shipper.want(wanted)

    def close(self) -> None:
        with self._lock:
            if self._shipper is not None:
                self._shipper.stop()

    def _failed(self, shipment: Shipment, error: DialError) -> None:
        if isinstance(error, PutRefused) and error.reason in _OF_THE_HOST:
            with database_connection():
                prepared.fail(shipment.host_id, shipment.blob.sha256, str(error), timezone.now())
            self._tell_failed(shipment.host_id)


def shipments_of(host_id: int, names: Collection[PreparationName]) -> list[Shipment]:
    keys_wanted = [name.key for name in names]
    rows = Preparation.objects.filter(host=host_id, key__in=keys_wanted).select_related("host")
    found: dict[str, Shipment] = {}
    for row in rows:
        for each in row.what.get("blobs", ()):
            blob = Bytes(each["sha256"], each["size"])
            found[blob.sha256] = Shipment(host_id, Target.of(row.host), blob, _reader(row.pk, blob.sha256))
    return list(found.values())


def _reader(preparation: int, sha256: str) -> Callable[[int], Iterator[bytes]]:
    """Reads the bytes as one of the projects has them whose runs need the preparation."""

    def read(start: int) -> Iterator[bytes]:
        with database_connection():
            mine = Blob.objects.filter(
                sha256=sha256, project__jobs__runs__needs__preparation=preparation
            ).first()
        if mine is None:
            raise OSError(f"no project has the bytes of {sha256[:12]} any more")
        yield from blobs.read(mine, start)

    return read
