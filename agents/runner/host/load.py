"""The load of the whole host: its GPUs, processors, memory, network and disks.

Serve looks while runs live, and every half a minute if the console asked for the frame `load`. Nothing here waits:
nvidia-smi is begun now and read later, the rest are small files of /proc and /sys.
"""

from __future__ import annotations

import math
import os
from typing import Dict, List, Tuple

from agents.runner.home import is_gpu
from agents.runner.programs import Program
from agents.runner.wire import Message

SMI_S, LOAD_S = 10.0, 30.0
# nvidia-smi takes a second on a slow host, and never ends where the driver hangs.
SMI_PATIENCE_S = 8.0
SMI = [
    "nvidia-smi",
    "--query-gpu=uuid,utilization.gpu,memory.used,power.draw,temperature.gpu",
    "--format=csv,noheader,nounits",
]
# A rate is measured over so long, and over no longer pause than the last.
FIRST_RATE_S, RATE_S, STALE_S = 0.9, 5.0, 90.0
SECTOR = 512
PROC, SYS = "/proc", "/sys"

# In percent, MiB, W and °C; None for what the card does not report.
GpuLoad = Tuple["int | None", "int | None", "float | None", "int | None"]
Counters = Dict[str, float]


class HostLoad:
    """What was last seen of the host's load."""

    def __init__(self) -> None:
        self.asked = False
        self.gpus: Dict[str, GpuLoad] = {}
        self.smi: Program | None = None
        self.smi_started_at = -LOAD_S
        self.smi_answered = False
        self.report_at = 0.0
        self.counted, self.counted_at = 0, -STALE_S
        self.counters: Counters = {}
        self.rates: Counters = {}

    def look(self, now: float, gpus_in_use: bool) -> None:
        """Begin or read one nvidia-smi for all GPUs of the host."""
        if self.smi is not None:
            self.read_smi(now)
        elif (gpus_in_use or self.asked) and now - self.smi_started_at >= (SMI_S if gpus_in_use else LOAD_S):
            self.smi_started_at = now
            self.smi = Program(SMI, with_stderr=False)

    def read_smi(self, now: float) -> None:
        assert self.smi is not None
        if self.smi.read():
            self.gpus, self.smi_answered = read_gpus(self.smi.output), True
        elif now - self.smi_started_at < SMI_PATIENCE_S:
            return
        else:
            self.smi.kill()
            self.gpus, self.smi_answered = {}, True
        self.smi.close()
        self.smi = None

    @property
    def waits_for_first_smi(self) -> bool:
        return self.smi is not None and not self.smi_answered

    def report(self, now: float) -> Message | None:
        """The frame `load`, when it is due."""
        if not self.asked or now < self.report_at:
            return None
        self.count(now)
        if self.smi is not None or self.counted < 2:
            return None
        self.report_at = now + LOAD_S
        message: Message = {"t": "load", "gpus": {uuid: list(load) for uuid, load in self.gpus.items()}}
        message["cpu"] = round(self.rates.get("cpu", 0.0), 3)
        message["mem_mb"] = used_memory_mb()
        return dict(message, **self.traffic())

    def traffic(self) -> Message:
        """What passed through the network and the disks of the host, in bytes per second: nothing until it is known."""
        found: Message = {}
        for name, (first, second) in {"net": ("rx", "tx"), "io": ("read", "write")}.items():
            if first in self.rates and second in self.rates:
                found[name] = [round(self.rates[first]), round(self.rates[second])]
        return found

    def count(self, now: float) -> None:
        """Read the counters, and make rates of them, if that is due."""
        passed = now - self.counted_at
        if passed < (RATE_S if self.rates else FIRST_RATE_S):
            return
        found = read_counters()
        known = self.counters if passed < STALE_S else {}
        # A counter that has begun anew, or a card that was taken out, gives no rate this time.
        self.rates = {
            name: (value - known[name]) / passed
            for name, value in found.items()
            if name in known and value >= known[name]
        }
        self.counters, self.counted, self.counted_at = found, self.counted + 1, now

    def close(self) -> None:
        if self.smi is not None:
            self.smi.kill()


def read_gpus(text: str) -> Dict[str, GpuLoad]:
    """UUID → what nvidia-smi says of the GPU."""
    found: Dict[str, GpuLoad] = {}
    for line in text.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 5 and is_gpu(parts[0]):
            percent, memory, power, heat = (number(part) for part in parts[1:])
            found[parts[0]] = (whole(percent), whole(memory), power, whole(heat))
    return found


def number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return round(value, 1) if math.isfinite(value) and value >= 0 else None


def whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def read_counters() -> Counters:
    """Seconds of all processors in use, and bytes of network and disks, since the host was started."""
    found: Counters = {}
    cpu = busy_seconds()
    if cpu is not None:
        found["cpu"] = cpu
    network = network_bytes(os.path.join(PROC, "net/dev"), os.path.join(SYS, "class/net"))
    disks = disk_bytes(os.path.join(PROC, "diskstats"), os.path.join(SYS, "block"))
    if network is not None:
        found["rx"], found["tx"] = network
    if disks is not None:
        found["read"], found["write"] = disks
    return found


def busy_seconds() -> float | None:
    """User, nice, system, irq, softirq and steal: all but idle and waiting for disks."""
    for line in lines_of(os.path.join(PROC, "stat")):
        fields = line.split()
        if len(fields) > 8 and fields[0] == "cpu":
            return sum(int(fields[at]) for at in (1, 2, 3, 6, 7, 8)) / os.sysconf("SC_CLK_TCK")
    return None


def network_bytes(path: str, devices: str) -> Tuple[int, int] | None:
    """(received, sent) by the network cards. A bridge or bond counts what a card has counted, so it is left out; where
    there are no cards, as in a container, all interfaces count but the loopback."""
    counted: Dict[str, Tuple[int, int]] = {}
    for line in lines_of(path)[2:]:
        name, _, rest = line.partition(":")
        fields = rest.split()
        if len(fields) > 8:
            counted[name.strip()] = (int(fields[0]), int(fields[8]))
    counted.pop("lo", None)
    return total(counted, devices)


def disk_bytes(path: str, devices: str) -> Tuple[int, int] | None:
    """(read, written) of the disks. Partitions, RAID and LVM count what a disk has counted, so they are left out."""
    counted: Dict[str, Tuple[int, int]] = {}
    for line in lines_of(path):
        fields = line.split()
        if len(fields) > 9 and not fields[2].startswith(("loop", "ram", "zram", "dm-", "md")):
            counted[fields[2]] = (int(fields[5]) * SECTOR, int(fields[9]) * SECTOR)
    return total(counted, devices)


def total(counted: Dict[str, Tuple[int, int]], devices: str) -> Tuple[int, int] | None:
    if not counted:
        return None
    real = [name for name in counted if os.path.exists(os.path.join(devices, name, "device"))]
    chosen = [counted[name] for name in real or counted]
    return sum(one for one, _ in chosen), sum(other for _, other in chosen)


def used_memory_mb() -> int | None:
    """What programs cannot have: in all, less what is free or can be freed."""
    found: Dict[str, int] = {}
    for line in lines_of(os.path.join(PROC, "meminfo")):
        fields = line.split()
        if len(fields) > 1 and fields[0] in ("MemTotal:", "MemAvailable:"):
            found[fields[0]] = int(fields[1])
    if len(found) < 2:
        return None
    return (found["MemTotal:"] - found["MemAvailable:"]) >> 10


def lines_of(path: str) -> List[str]:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(1 << 20).splitlines()
    except OSError:
        return []
