"""What a machine spec asks of a host: CPUs, memory, GPUs.

Google's machine types are built in as facts, so that a job written for Vertex asks for the same here. On one's own
hosts nothing needs a type: without one (or with "host") a replica asks for one CPU and its GPUs, and shares the rest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from jobs.rules.customjob import Machine

FORMS = (
    'leave it out or say "host" for a share of a host, "custom-CPUS-MEMORY_MB" (custom-8-32768), '
    "or one of Google's n1, n2, e2, c2, g2, a2 and a3 types (n1-standard-8)"
)


@dataclass(frozen=True, slots=True)
class Needs:
    """What one replica takes of one host."""

    cpus: float = 1.0
    memory_mb: int = 0
    accelerator_type: str = ""
    gpus: int = 0


class UnknownMachine(Exception):
    """No such machine type, or it does not go with these accelerators. The message says what is possible."""


# Family: memory per CPU in MB, and the numbers of CPUs that exist.
_FAMILIES: dict[str, tuple[float, tuple[int, ...]]] = {
    "n1-standard": (3_840, (1, 2, 4, 8, 16, 32, 64, 96)),
    "n1-highmem": (6_656, (2, 4, 8, 16, 32, 64, 96)),
    "n1-highcpu": (921.6, (2, 4, 8, 16, 32, 64, 96)),
    "n2-standard": (4_096, (2, 4, 8, 16, 32, 48, 64, 80, 96, 128)),
    "n2-highmem": (8_192, (2, 4, 8, 16, 32, 48, 64, 80, 96, 128)),
    "n2-highcpu": (1_024, (2, 4, 8, 16, 32, 48, 64, 80, 96)),
    "e2-standard": (4_096, (2, 4, 8, 16, 32)),
    "e2-highmem": (8_192, (2, 4, 8, 16)),
    "e2-highcpu": (1_024, (2, 4, 8, 16, 32)),
    "c2-standard": (4_096, (4, 8, 16, 30, 60)),
}
# Types that bring their GPUs along: CPUs, memory in GB, accelerator, how many.
_WITH_GPUS: dict[str, tuple[int, int, str, int]] = {
    "g2-standard-4": (4, 16, "NVIDIA_L4", 1),
    "g2-standard-8": (8, 32, "NVIDIA_L4", 1),
    "g2-standard-12": (12, 48, "NVIDIA_L4", 1),
    "g2-standard-16": (16, 64, "NVIDIA_L4", 1),
    "g2-standard-24": (24, 96, "NVIDIA_L4", 2),
    "g2-standard-32": (32, 128, "NVIDIA_L4", 1),
    "g2-standard-48": (48, 192, "NVIDIA_L4", 4),
    "g2-standard-96": (96, 384, "NVIDIA_L4", 8),
    "a2-highgpu-1g": (12, 85, "NVIDIA_TESLA_A100", 1),
    "a2-highgpu-2g": (24, 170, "NVIDIA_TESLA_A100", 2),
    "a2-highgpu-4g": (48, 340, "NVIDIA_TESLA_A100", 4),
    "a2-highgpu-8g": (96, 680, "NVIDIA_TESLA_A100", 8),
    "a2-megagpu-16g": (96, 1360, "NVIDIA_TESLA_A100", 16),
    "a2-ultragpu-1g": (12, 170, "NVIDIA_A100_80GB", 1),
    "a2-ultragpu-2g": (24, 340, "NVIDIA_A100_80GB", 2),
    "a2-ultragpu-4g": (48, 680, "NVIDIA_A100_80GB", 4),
    "a2-ultragpu-8g": (96, 1360, "NVIDIA_A100_80GB", 8),
    "a3-highgpu-1g": (26, 234, "NVIDIA_H100_80GB", 1),
    "a3-highgpu-2g": (52, 468, "NVIDIA_H100_80GB", 2),
    "a3-highgpu-4g": (104, 936, "NVIDIA_H100_80GB", 4),
    "a3-highgpu-8g": (208, 1872, "NVIDIA_H100_80GB", 8),
    "a3-megagpu-8g": (208, 1872, "NVIDIA_H100_MEGA_80GB", 8),
    "a3-ultragpu-8g": (224, 2952, "NVIDIA_H200_141GB", 8),
}
_CUSTOM = re.compile(r"(?:n1-|n2-|e2-)?custom-([1-9][0-9]{0,3})-([1-9][0-9]{0,7})", re.ASCII)


def needs(machine: Machine) -> Needs:
    """What one replica on this machine takes. Raises `UnknownMachine`."""
    name = machine.machine_type
    if name in _WITH_GPUS:
        cpus, memory_gb, accelerator, gpus = _WITH_GPUS[name]
        given = (machine.accelerator_type, machine.accelerator_count)
        if given not in (("", 0), (accelerator, gpus)):
            raise UnknownMachine(f"{name} comes with {gpus} x {accelerator}; ask for these or for none.")
        return Needs(float(cpus), memory_gb * 1024, accelerator, gpus)
    cpus_and_memory = _plain(name)
    if cpus_and_memory is None:
        raise UnknownMachine(f'"{name}" is not a machine type known here: {FORMS}.')
    return Needs(*cpus_and_memory, machine.accelerator_type, machine.accelerator_count)


def _plain(name: str) -> tuple[float, int] | None:
    """CPUs and memory in MB of a type without GPUs of its own."""
    if name in ("", "host"):
        return 1.0, 0
    custom = _CUSTOM.fullmatch(name)
    if custom:
        return float(custom[1]), int(custom[2])
    family, _, size = name.rpartition("-")
    per_cpu_mb, sizes = _FAMILIES.get(family, (0.0, ()))
    if size in map(str, sizes):
        return float(size), round(int(size) * per_cpu_mb)
    return None
