"""Machine types: Google's well-known names as facts, one's own as numbers, the rest refused with what there is."""

from __future__ import annotations

import pytest

from jobs.rules.customjob import Machine
from jobs.rules.machines import Needs, UnknownMachine, needs

KNOWN = [
    (Machine(), Needs(1.0, 0)),
    (Machine("host"), Needs(1.0, 0)),
    (Machine("", "NVIDIA_TESLA_T4", 2), Needs(1.0, 0, "NVIDIA_TESLA_T4", 2)),
    (Machine("n1-standard-4"), Needs(4.0, 15 * 1024)),
    (Machine("n1-highmem-8", "NVIDIA_TESLA_V100", 1), Needs(8.0, 52 * 1024, "NVIDIA_TESLA_V100", 1)),
    (Machine("n1-highcpu-16"), Needs(16.0, round(14.4 * 1024))),
    (Machine("e2-standard-2"), Needs(2.0, 8 * 1024)),
    (Machine("custom-6-20480"), Needs(6.0, 20_480)),
    (Machine("n1-custom-6-20480"), Needs(6.0, 20_480)),
    (Machine("g2-standard-24"), Needs(24.0, 96 * 1024, "NVIDIA_L4", 2)),
    (Machine("a3-highgpu-8g", "NVIDIA_H100_80GB", 8), Needs(208.0, 1872 * 1024, "NVIDIA_H100_80GB", 8)),
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
