"""Machine types: Google's names are known, one's own are numbers, and any other is refused with what is possible."""

from __future__ import annotations

import pytest

from jobs.rules.spec.custom_job import Machine
from jobs.rules.spec.machine_types import (
    Needs,
    UnknownMachine,
    allocatable_mb,
    is_taken,
    needs,
    nominal,
    well_known,
)

KNOWN = [
    (Machine(), Needs(1.0, 0)),
    (Machine("host"), Needs(1.0, 0)),
    (Machine("", "NVIDIA_TESLA_T4", 2), Needs(1.0, 0, "NVIDIA_TESLA_T4", 2)),
    (Machine("n1-standard-4"), Needs(4.0, allocatable_mb(15 * 1024))),
    (
        Machine("n1-highmem-8", "NVIDIA_TESLA_V100", 1),
        Needs(8.0, allocatable_mb(52 * 1024), "NVIDIA_TESLA_V100", 1),
    ),
    (Machine("n1-highcpu-16"), Needs(16.0, allocatable_mb(round(14.4 * 1024)))),
    (Machine("e2-standard-2"), Needs(2.0, allocatable_mb(8 * 1024))),
    (Machine("custom-6-20480"), Needs(6.0, 20_480)),
    (Machine("n1-custom-6-20480"), Needs(6.0, allocatable_mb(20_480))),
    (Machine("g2-standard-24"), Needs(24.0, allocatable_mb(96 * 1024), "NVIDIA_L4", 2)),
    (
        Machine("a3-highgpu-8g", "NVIDIA_H100_80GB", 8),
        Needs(208.0, allocatable_mb(1872 * 1024), "NVIDIA_H100_80GB", 8),
    ),
]


@pytest.mark.parametrize(("machine", "expected"), KNOWN, ids=str)
def test_known_machines(machine, expected):
    assert needs(machine) == expected


@pytest.mark.parametrize(
    "machine",
    [
        Machine("n1-standard-5"),
        Machine("n1-standard-04"),
        Machine("n1-standard"),
        Machine("custom-0-1024"),
        Machine("custom-4"),
        Machine("m5.large"),
        Machine("a2-highgpu-1g", "NVIDIA_TESLA_T4", 1),
        Machine("g2-standard-24", "NVIDIA_L4", 1),
    ],
    ids=str,
)
def test_unknown_machines_are_refused_with_what_is_possible(machine):
    with pytest.raises(UnknownMachine, match="custom-CPUS-MEMORY_MB|ask for these"):
        needs(machine)


OWN = {"lab-8": Needs(32.0, 200_000, "NVIDIA_H100_80GB", 8), "lab-cpu": Needs(12.0, 50_000)}


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        (Machine("lab-8"), OWN["lab-8"]),
        (Machine("lab-8", "NVIDIA_H100_80GB", 8), OWN["lab-8"]),
        (Machine("lab-cpu"), OWN["lab-cpu"]),
        (Machine("lab-cpu", "NVIDIA_L4", 1), Needs(12.0, 50_000, "NVIDIA_L4", 1)),
    ],
    ids=str,
)
def test_an_admins_type_is_asked_for_by_its_name(machine, expected):
    assert needs(machine, OWN) == expected


def test_an_admins_type_with_gpus_is_asked_for_with_these_or_none():
    with pytest.raises(UnknownMachine, match="comes with 8 x NVIDIA_H100_80GB"):
        needs(Machine("lab-8", "NVIDIA_H100_80GB", 4), OWN)
    with pytest.raises(UnknownMachine, match="this location also has lab-8, lab-cpu"):
        needs(Machine("lab-9"), OWN)


def test_a_name_of_googles_cannot_be_defined():
    taken = ["", "host", "custom-4-1024", "n1-custom-4-1024", *well_known()]
    assert all(is_taken(name) for name in taken) and len(taken) > 100
    assert not is_taken("lab-8") and not is_taken("n1-standard-5")


def test_small_machines_lose_up_to_two_fifths_and_large_ones_little():
    """S0-33, S0-34: allocatable memory of each well-known type is below its nominal one, and by how much."""
    lost = {}
    for name in well_known():
        whole = nominal(name).memory_mb
        left = needs(Machine(name)).memory_mb
        lost[name] = 1 - left / whole
        assert 0 < left < whole and lost[name] <= 0.40
    assert allocatable_mb(256) == 154 and allocatable_mb(0) == 0
    n1 = [lost[f"n1-standard-{size}"] for size in (1, 2, 4, 8, 16, 32, 64, 96)]
    assert n1 == sorted(n1, reverse=True) and n1[0] > 0.25 and n1[-1] < 0.06
    assert lost["a3-ultragpu-8g"] < 0.03
