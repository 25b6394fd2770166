"""How near the GPUs of a host are to each other, parsed from `nvidia-smi topo -m`, whose text is not trusted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agents.infra.texts import join, said

MAX_GPUS = 64
# A higher weight means nearer: first the number of NVLinks counts, then how much of the PCIe tree and of the machine
# lies between.
WEIGHTS = {"PIX": 40, "PXB": 30, "PSB": 30, "PHB": 20, "NODE": 10, "SYS": 0, "SOC": 0}
NVLINK = 100
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_GPU = re.compile(r"GPU(\d{1,3})\Z")


def parse(text: str) -> dict[str, Any]:
    """`{"links": [[i, j, weight], …], "numa": {"<index>": node}}` by nvidia-smi's indexes; {} if it is no table."""
    columns: list[str] = []
    rows: dict[int, list[str]] = {}
    for line in _ANSI.sub("", text).splitlines()[:1000]:
        cells = [cell.strip() for cell in line.split("\t")]
        if not columns and "GPU0" in cells[1:]:
            columns = cells
        elif columns and (named := _GPU.match(cells[0])):
            rows.setdefault(int(named.group(1)), cells)
    if not columns or len(rows) > MAX_GPUS:
        return {}
    columns_of = {int(named.group(1)): at for at, name in enumerate(columns) if (named := _GPU.match(name))}
    links = [
        [one, other, weight]
        for one in sorted(rows)
        for other in sorted(columns_of)
        if one < other and (weight := _weight(_cell(rows[one], columns_of[other]))) is not None
    ]
    numa_at = columns.index("NUMA Affinity") if "NUMA Affinity" in columns else -1
    nodes = {str(gpu): _cell(cells, numa_at) for gpu, cells in sorted(rows.items())}
    numa = {
        gpu: int(node) for gpu, node in nodes.items() if node.isascii() and node.isdigit() and len(node) < 5
    }
    return {"links": links, "numa": numa}


def topology_text(found: Mapping[str, Any]) -> str:
    """The text for the checklist: `NVLink between all`, or how many pairs have NVLink and over how many NUMA nodes."""
    weights = [weight for _, _, weight in found.get("links", [])]
    if not weights:
        return ""
    if min(weights) > NVLINK:
        return said("NVLink between all")
    linked = sum(weight > NVLINK for weight in weights)
    nodes = len(set(found["numa"].values()))
    if linked:
        near = said("NVLink between {number} of {all} pairs", number=linked, all=len(weights))
    else:
        near = said("PCIe only")
    return join(", ", [near, said("{number} NUMA nodes", number=nodes)]) if nodes > 1 else near


def _cell(cells: list[str], at: int) -> str:
    return cells[at] if 0 <= at < len(cells) else ""


def _weight(cell: str) -> int | None:
    nvlinks = re.fullmatch(r"NV(\d{1,3})", cell)
    return NVLINK + int(nvlinks.group(1)) if nvlinks else WEIGHTS.get(cell)
