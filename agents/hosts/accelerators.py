"""From nvidia-smi's name of a GPU model to Vertex's accelerator type, where Vertex has one."""

from __future__ import annotations

import re

# The first match counts, so the longer names come first.
_NAMES: tuple[tuple[str, str], ...] = (
    (r"\bGB200\b", "NVIDIA_GB200"),
    (r"\bB200\b", "NVIDIA_B200"),
    (r"\bH200\b", "NVIDIA_H200_141GB"),
    (r"\bH100\b.*\bMEGA\b", "NVIDIA_H100_MEGA_80GB"),
    (r"\bH100\b", "NVIDIA_H100_80GB"),
    (r"\bA100\b.*80GB", "NVIDIA_A100_80GB"),
    (r"\bA100\b", "NVIDIA_TESLA_A100"),
    (r"\bRTX PRO 6000\b", "NVIDIA_RTX_PRO_6000"),
    (r"\bL4\b", "NVIDIA_L4"),
    (r"\bT4\b", "NVIDIA_TESLA_T4"),
    (r"\bV100\b", "NVIDIA_TESLA_V100"),
    (r"\bP100\b", "NVIDIA_TESLA_P100"),
    (r"\bP4\b", "NVIDIA_TESLA_P4"),
    (r"\bK80\b", "NVIDIA_TESLA_K80"),
)


def accelerator_type(model: str) -> str:
    """'NVIDIA H100 80GB HBM3' → NVIDIA_H100_80GB; a model that Vertex does not know gets its own name in that form."""
    for pattern, name in _NAMES:
        if re.search(pattern, model, re.IGNORECASE):
            return name
    own = re.sub(r"[^A-Z0-9]+", "_", model.upper()).strip("_")
    return (own if own.startswith("NVIDIA") else f"NVIDIA_{own}")[:63].rstrip("_")
