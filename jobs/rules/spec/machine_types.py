"""What a machine spec needs of a host: CPUs, memory, GPUs.

Google's machine types are built in, so that a job written for Vertex needs the same here; admins define types of their
own (`Types`). On one's own hosts no type is required: without one (or with "host") a replica needs one CPU and its
GPUs, and shares the rest.

**Memory.** The memory of a machine type is *nominal*. The system uses a part of it, on Google's machines as on yours. A
replica gets what is left, the *allocatable* memory: this is claimed on a host, and it is the replica's limit. The
system keeps 100 MB, 25 % of the first 4 GB, 20 % of the next 4, 10 % of the next 8, 6 % of the next 112 and 2 % of the
rest, but never more than 40 % of a machine. So the smallest types lose up to 40 %, larger ones relatively little.
`custom-CPUS-MEMORY_MB` is a share of a machine, so its memory is allocatable memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from agents.infra.texts import said
from jobs.rules.spec.custom_job import Machine

FORMS = said(
    'leave it out or say "host" for a share of a host, "custom-CPUS-MEMORY_MB" (custom-8-32768), '
    "or one of Google's n1, n2, n2d, e2, c2, g2, a2 and a3 types (n1-standard-8)"
)


@dataclass(frozen=True, slots=True)
class Needs:
    """What one replica needs of one host. Memory is allocatable memory."""

    cpus: float = 1.0
    memory_mb: int = 0
    accelerator_type: str = ""
    gpus: int = 0


# Machine types that admins have defined, by name.
Types = Mapping[str, Needs]
NO_TYPES: Types = MappingProxyType({})


class UnknownMachine(Exception):
    """The machine type is unknown, or cannot have these accelerators. The message says what is possible."""


# Family: memory per CPU in MB, and the numbers of CPUs that exist.
_FAMILIES: dict[str, tuple[float, tuple[int, ...]]] = {
    "n1-standard": (3_840, (1, 2, 4, 8, 16, 32, 64, 96)),
    "n1-highmem": (6_656, (2, 4, 8, 16, 32, 64, 96)),
    "n1-highcpu": (921.6, (2, 4, 8, 16, 32, 64, 96)),
    "n2-standard": (4_096, (2, 4, 8, 16, 32, 48, 64, 80, 96, 128)),
    "n2-highmem": (8_192, (2, 4, 8, 16, 32, 48, 64, 80, 96)),
    "n2-highcpu": (1_024, (2, 4, 8, 16, 32, 48, 64, 80, 96)),
    "n2d-standard": (4_096, (2, 4, 8, 16, 32, 48, 64, 80, 96, 128, 224)),
    "n2d-highmem": (8_192, (2, 4, 8, 16, 32, 48, 64, 80, 96)),
    "n2d-highcpu": (1_024, (2, 4, 8, 16, 32, 48, 64, 80, 96, 128, 224)),
    "e2-standard": (4_096, (2, 4, 8, 16, 32)),
    "e2-highmem": (8_192, (2, 4, 8, 16)),
    "e2-highcpu": (1_024, (2, 4, 8, 16, 32)),
    "c2-standard": (4_096, (4, 8, 16, 30, 60)),
}
# The one type whose memory does not follow from its CPUs.
_ODD_MB = {"n2-highmem-128": 864 * 1024}
# Types that include GPUs: CPUs, memory in GB, accelerator, how many.
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
_SHARE = re.compile(r"custom-([1-9][0-9]{0,3})-([1-9][0-9]{0,7})", re.ASCII)
_CUSTOM = re.compile(r"(?:n1-|n2-|n2d-|e2-)custom-([1-9][0-9]{0,3})-([1-9][0-9]{0,7})", re.ASCII)

# How much of the memory the system keeps: of the first so many MB this share, of the next so many that share, ...
_KEPT = ((4_096, 0.25), (4_096, 0.20), (8_192, 0.10), (114_688, 0.06), (1 << 40, 0.02))
_KEPT_AT_LEAST_MB = 100
_MAX_KEPT = 0.40


def allocatable_mb(nominal_mb: int) -> int:
    """The memory that a replica may use of a machine with this nominal memory."""
    kept, left = float(_KEPT_AT_LEAST_MB), nominal_mb
    for size, share in _KEPT:
        kept += min(left, size) * share
        left -= min(left, size)
    return nominal_mb - round(min(kept, nominal_mb * _MAX_KEPT))


def needs(machine: Machine, types: Types = NO_TYPES) -> Needs:
    """What one replica on this machine needs. Raises `UnknownMachine`."""
    name = machine.machine_type
    own = types.get(name) or _with_gpus(name)
    if own is not None and own.gpus:
        given = (machine.accelerator_type, machine.accelerator_count)
        if given not in (("", 0), (own.accelerator_type, own.gpus)):
            raise UnknownMachine(
                said(
                    "{name} comes with {number} x {type}; ask for these or for none.",
                    name=name,
                    number=own.gpus,
                    type=own.accelerator_type,
                )
            )
        return own
    plain = own or _plain(name)
    if plain is None:
        raise UnknownMachine(_unknown(name, types))
    return Needs(plain.cpus, plain.memory_mb, machine.accelerator_type, machine.accelerator_count)


def _unknown(name: str, types: Types) -> str:
    if not types:
        return said('"{name}" is not a machine type known here: {forms}.', name=name, forms=FORMS)
    return said(
        '"{name}" is not a machine type known here: {forms}; this location also has {types}.',
        name=name,
        forms=FORMS,
        types=", ".join(sorted(types)[:20]),
    )


def nominal(name: str) -> Needs | None:
    """One of Google's types by its name, with its nominal memory. None for any other name."""
    if name in _WITH_GPUS:
        cpus, memory_gb, accelerator, gpus = _WITH_GPUS[name]
        return Needs(float(cpus), memory_gb * 1024, accelerator, gpus)
    custom = _CUSTOM.fullmatch(name)
    if custom:
        return Needs(float(custom[1]), int(custom[2]))
    family, _, size = name.rpartition("-")
    per_cpu_mb, sizes = _FAMILIES.get(family, (0.0, ()))
    if size in map(str, sizes):
        return Needs(float(size), _ODD_MB.get(name, round(int(size) * per_cpu_mb)))
    return None


def well_known() -> Iterator[str]:
    """The names of Google's types, those with GPUs first."""
    yield from _WITH_GPUS
    for family, (_, sizes) in _FAMILIES.items():
        yield from (f"{family}-{size}" for size in sizes)


def is_taken(name: str) -> bool:
    """Has this name a meaning already, so that no admin may define it?"""
    return name in ("", "host") or nominal(name) is not None or _SHARE.fullmatch(name) is not None


def _with_gpus(name: str) -> Needs | None:
    return _allocatable(nominal(name)) if name in _WITH_GPUS else None


def _plain(name: str) -> Needs | None:
    """CPUs and memory of a type that includes no GPUs."""
    if name in ("", "host"):
        return Needs()
    share = _SHARE.fullmatch(name)
    if share:
        return Needs(float(share[1]), int(share[2]))
    return _allocatable(nominal(name))


def _allocatable(machine: Needs | None) -> Needs | None:
    if machine is None:
        return None
    return Needs(machine.cpus, allocatable_mb(machine.memory_mb), machine.accelerator_type, machine.gpus)
