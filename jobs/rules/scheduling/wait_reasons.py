"""Which kind of reason a job waits for, read from the words that the scheduler gave it.

Two sentences that differ in numbers and names only ("3 hosts free", "2 hosts free") are the same kind.
"""

from __future__ import annotations

import re

QUOTA = "quota"
_QUOTA = re.compile(
    r"\bquota\b|\b(?:project|member|user) \S+ (?:uses|runs|has)\b|\bGPU-hours\b", re.IGNORECASE
)
# What stands for a number, a time, a machine, a model or a place: anything with a digit, a dash or an underscore in it.
_NAMES = re.compile(r"\S*[\d_-]\S*")


def wait_kind(reason: str) -> str:
    """`quota`, or the sentence without what changes from pass to pass."""
    if _QUOTA.search(reason):
        return QUOTA
    words = _NAMES.sub("#", reason.split(";")[0])
    return re.sub(r"[^a-z# ]+", "", words.lower()).strip()[:200]
