"""How busy each host is: its runner reports it every half a minute, also while nothing runs there.

Only the newest report is kept, one row for each machine. What runs used over time is in the samples of jobs/.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from agents.infra import untrusted
from agents.infra.text import clean_text
from agents.links.arrivals import MAX_CELSIUS, MAX_CORES, MAX_GPUS, MAX_MB, MAX_WATTS, rates
from agents.models import Host, HostLoad


def is_wanted(host_id: int) -> bool:
    """Whether this link is asked for the load. Of a machine with several logins, one link is enough."""
    return Host.every.filter(pk=host_id, machine=None).exists()


def record(host_id: int, token: int, report: Mapping[str, Any], now: datetime) -> bool:
    """Store what the holder of the lease was told. Nothing is decided by it, so it returns False."""
    if not Host.every.filter(pk=host_id, machine=None, lease_token=token).exists():
        return False
    gpus = list(untrusted.mapping(report.get("gpus")).items())[:MAX_GPUS]
    (net_rx, net_tx), (io_read, io_write) = rates(report.get("net")), rates(report.get("io"))
    row = HostLoad(
        host_id=host_id,
        at=now,
        gpus={clean_text(uuid, 80): load for uuid, values in gpus if (load := _gpu(values)) is not None},
        cpu=untrusted.number(report.get("cpu"), MAX_CORES),
        memory_mb=untrusted.whole_number(report.get("mem_mb"), 0, MAX_MB),
        net_rx=net_rx,
        net_tx=net_tx,
        io_read=io_read,
        io_write=io_write,
    )
    columns = [field.name for field in HostLoad._meta.fields if not field.primary_key]
    HostLoad.objects.bulk_create([row], update_conflicts=True, unique_fields=["host"], update_fields=columns)
    return False


def _gpu(values: object) -> list[int | None] | None:
    """[percent, MiB, W, °C] as the host reported them."""
    if not isinstance(values, list) or len(values) != 4:
        return None
    limits = (100, MAX_MB, MAX_WATTS, MAX_CELSIUS)
    found = [untrusted.number(value, limit) for value, limit in zip(values, limits, strict=True)]
    return [None if value is None else round(value) for value in found]
