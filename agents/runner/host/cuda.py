"""The numbers by which CUDA programs are told their GPUs.

DeepSpeed, vLLM and older torch read CUDA_VISIBLE_DEVICES as numbers, and fail with UUIDs. A number is right only
together with CUDA_DEVICE_ORDER=PCI_BUS_ID, and only now: when a card falls off its bus, those behind it move up. So the
driver is asked at each start. Where its answer leaves a doubt, UUIDs are given: a UUID never means another card.
"""

from __future__ import annotations

import shutil
from typing import Dict, List

from agents.runner.home import is_gpu
from agents.runner.programs import Program, output_of

ORDER_BY_BUS = "PCI_BUS_ID"
_CARDS = ["nvidia-smi", "--query-gpu=pci.bus_id,uuid,mig.mode.current", "--format=csv,noheader"]
# Drivers of 2019 know no MIG.
_OLD_CARDS = ["nvidia-smi", "--query-gpu=pci.bus_id,uuid", "--format=csv,noheader"]


class CudaNumbers:
    """A question to the driver: asked now, read later, so that the look for other processes goes on beside it."""

    def __init__(self, gpus: List[str]) -> None:
        self._gpus = gpus
        self._asked = Program(_CARDS) if gpus and shutil.which("nvidia-smi") else None

    def answer(self, timeout: float) -> str:
        """The value for CUDA_VISIBLE_DEVICES."""
        if self._asked is None:
            return ",".join(self._gpus)
        status, text = self._asked.answer(timeout)
        if "not a valid field" in text:
            status, text = output_of(_OLD_CARDS, timeout)
        numbers = numbers_of(text) if status == 0 else {}
        if not all(gpu in numbers for gpu in self._gpus):
            return ",".join(self._gpus)
        return ",".join(str(numbers[gpu]) for gpu in self._gpus)


def numbers_of(text: str) -> Dict[str, int]:
    """UUID → CUDA's number in the order of the bus. A card that does not answer has none, and is not counted.

    Empty where a card is in MIG mode: CUDA counts its slices in a way of its own. Empty too where the UUID of a listed
    card cannot be read, and the driver does not say that the card is lost: nobody knows whether CUDA counts that card.
    """
    rows = [[part.strip() for part in line.split(",")] for line in text.splitlines()]
    if any(row[2:] == ["Enabled"] for row in rows):
        return {}
    if any(len(row) in (2, 3) and not is_gpu(row[1]) and "lost" not in row[1] for row in rows):
        return {}
    cards = sorted((row[0].lower(), row[1]) for row in rows if len(row) in (2, 3) and is_gpu(row[1]))
    return {uuid: number for number, (_, uuid) in enumerate(cards)}
