"""The topology tables that nvidia-smi prints on real machines are parsed."""

from __future__ import annotations

import pytest

from agents.hosts import topology


def table(header, *rows):
    return (
        "\t" + header.replace(" | ", "\t") + "\n" + "".join(row.replace(" | ", "\t") + "\n" for row in rows)
    )


TAIL = "CPU Affinity | NUMA Affinity | GPU NUMA ID"
LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
"""
# Eight H100 behind NVSwitches, as current drivers print it: underlined header, network cards among the columns.
H100 = (
    "\t\x1b[4m"
    + "\t".join(
        [*(f"GPU{n}" for n in range(8)), "NIC0", "NIC1", "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]
    )
    + "\x1b[0m\n"
    + "".join(
        f"GPU{n}\t"
        + "\t".join(" X " if n == m else "NV18" for m in range(8))
        + f"\tPIX\tSYS\t{'0-47,96-143' if n < 4 else '48-95,144-191'}\t{n // 4}\t\tN/A\n"
        for n in range(8)
    )
    + "NIC0\tPIX\tNODE\tNODE\tNODE\tSYS\tSYS\tSYS\tSYS\t X \tSYS\n"
    + LEGEND
)
# Eight V100 in a hybrid cube mesh (DGX-1), by a driver that had no NUMA column yet.
V100_LINKS = [
    "X NV1 NV1 NV2 NV2 SYS SYS SYS",
    "NV1 X NV2 NV1 SYS NV2 SYS SYS",
    "NV1 NV2 X NV2 SYS SYS NV1 SYS",
    "NV2 NV1 NV2 X SYS SYS SYS NV1",
    "NV2 SYS SYS SYS X NV1 NV1 NV2",
    "SYS NV2 SYS SYS NV1 X NV2 NV1",
    "SYS SYS NV1 SYS NV1 NV2 X NV2",
    "SYS SYS SYS NV1 NV2 NV1 NV2 X",
]
V100 = (
    "\t" + "\t".join([*(f"GPU{n}" for n in range(8)), "mlx5_0", "CPU Affinity"]) + "\n"
    + "".join(
        "\t".join([f"GPU{n}", *row.split(), "PIX", "0-19" if n < 4 else "20-39"]) + "\n"
        for n, row in enumerate(V100_LINKS)
    )
    + "mlx5_0\tPIX\tPIX\tPHB\tPHB\tSYS\tSYS\tSYS\tSYS\t X \n"
    + LEGEND
)  # fmt: skip
# Four RTX 3090 in a workstation: two below each root complex.
RTX = table(
    "GPU0 | GPU1 | GPU2 | GPU3 | " + TAIL,
    "GPU0 |  X  | PHB | SYS | SYS | 0-15,32-47 | 0 |  | N/A",
    "GPU1 | PHB |  X  | SYS | SYS | 0-15,32-47 | 0 |  | N/A",
    "GPU2 | SYS | SYS |  X  | PXB | 16-31,48-63 | 1 |  | N/A",
    "GPU3 | SYS | SYS | PXB |  X  | 16-31,48-63 | 1 |  | N/A",
)


def weights(text):
    return {(one, other): weight for one, other, weight in topology.parse(text)["links"]}


def test_eight_gpus_behind_switches_are_equally_near():
    found = weights(H100)
    assert len(found) == 28 and set(found.values()) == {118}
    assert topology.parse(H100)["numa"] == {str(n): n // 4 for n in range(8)}
    assert topology.topology_text(topology.parse(H100)) == "NVLink between all"


def test_a_hybrid_mesh_has_near_and_far_pairs():
    found = weights(V100)
    assert (found[0, 3], found[0, 1], found[0, 5], found[4, 7]) == (102, 101, 0, 102)
    assert topology.parse(V100)["numa"] == {} and len(found) == 28
    assert topology.topology_text(topology.parse(V100)) == "NVLink between 16 of 28 pairs"


def test_gpus_with_pcie_only():
    assert weights(RTX) == {(0, 1): 20, (0, 2): 0, (0, 3): 0, (1, 2): 0, (1, 3): 0, (2, 3): 30}
    assert topology.parse(RTX)["numa"] == {"0": 0, "1": 0, "2": 1, "3": 1}
    assert topology.topology_text(topology.parse(RTX)) == "PCIe only, 2 NUMA nodes"


def test_one_gpu_has_no_pairs():
    one = table("GPU0 | " + TAIL, "GPU0 |  X  | 0-15 | 0 |  | N/A")
    assert (
        topology.parse(one) == {"links": [], "numa": {"0": 0}}
        and topology.topology_text(topology.parse(one)) == ""
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "NVIDIA-SMI has failed",
        "\x1b[4m\x1b[0m",
        "GPU0",
        "\tGPU0\tGPU1\nGPU0\n",
        "\tGPU0\nGPU9999\tX\n",
        "\0" * 99,
    ]
    + ["\tGPU0\n" + "".join(f"GPU{n}\tX\n" for n in range(200))],
)
def test_a_text_that_is_no_table_gives_nothing(text):
    assert not topology.parse(text).get("links") and topology.topology_text(topology.parse(text)) == ""
