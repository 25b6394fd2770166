"""How busy a host is now, as it last reported, and how its GPUs were used over the last day."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.utils.translation import gettext as _

from agents.models import LOAD_IS_FRESH, Gpu, Host, HostLoad
from console.presenters import sizes
from console.presenters.hosts.gpu_last_day import LastDay, last_day


@dataclass(frozen=True, slots=True)
class LoadLine:
    """`percent`: how much of the whole is used, where there is a whole."""

    name: str
    words: str
    percent: int | None = None


@dataclass(frozen=True, slots=True)
class GpuLoad:
    """What one GPU does. None and empty where the host did not say it."""

    index: int
    load: int | None
    memory: str
    percent: int | None
    power: int | None
    temperature: int | None


@dataclass(frozen=True, slots=True)
class LoadNow:
    """`at`: when the host reported it; None where it has reported nothing lately."""

    at: datetime | None
    lines: tuple[LoadLine, ...]
    gpus: tuple[GpuLoad, ...]
    day: LastDay | None


def load_now(host: Host, now: datetime) -> LoadNow:
    """Return the load of a machine. An old report says nothing about now, so it is not shown."""
    load = HostLoad.objects.filter(host=host, at__gt=now - LOAD_IS_FRESH).first()
    gpus = list(Gpu.objects.filter(host=host, present=True).order_by("index"))
    return LoadNow(
        at=load.at if load else None,
        lines=tuple(_lines(host, load)) if load else (),
        gpus=tuple(_gpu(gpu, load) for gpu in gpus) if load and load.gpus else (),
        day=last_day([host.pk], "", len(gpus), now) if gpus else None,
    )


def stamp(host_id: int, now: datetime) -> list[object]:
    """What changes with each report, and when the reports have become too old."""
    load = HostLoad.objects.filter(host=host_id, at__gt=now - LOAD_IS_FRESH)
    return [
        *load.values_list("at", flat=True),
        now.replace(minute=now.minute // 10 * 10, second=0, microsecond=0),
    ]


def _lines(host: Host, load: HostLoad) -> Iterable[LoadLine]:
    if load.cpu is not None:
        words = _("{used} of {all} cores").format(used=sizes.decimal(load.cpu), all=host.cpus)
        yield LoadLine(_("CPU"), words, _percent(load.cpu, host.cpus))
    if load.memory_mb is not None:
        used, whole = sizes.mebibytes(load.memory_mb), sizes.mebibytes(host.memory_mb)
        words = _("{used} of {all}").format(used=used, all=whole)
        yield LoadLine(_("Memory in use"), words, _percent(load.memory_mb, host.memory_mb))
    if load.net_rx is not None and load.net_tx is not None:
        words = _("{received} in, {sent} out").format(
            received=sizes.rate(load.net_rx), sent=sizes.rate(load.net_tx)
        )
        yield LoadLine(_("Network"), words)
    if load.io_read is not None and load.io_write is not None:
        words = _("{read} read, {written} written").format(
            read=sizes.rate(load.io_read), written=sizes.rate(load.io_write)
        )
        yield LoadLine(_("Disk"), words)


def _gpu(gpu: Gpu, load: HostLoad) -> GpuLoad:
    percent, used, power, temperature = load.gpus.get(gpu.uuid) or (None, None, None, None)
    memory = ""
    if used is not None:
        memory = _("{used} of {all}").format(used=sizes.mebibytes(used), all=sizes.mebibytes(gpu.memory_mb))
    share = None if used is None else _percent(used, gpu.memory_mb)
    return GpuLoad(gpu.index, percent, memory, share, power, temperature)


def _percent(part: float, whole: float) -> int | None:
    return min(round(100 * part / whole), 100) if whole else None
