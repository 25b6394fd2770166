"""A shuffled order of the numbers below any bound, without a list of them.

A Feistel network turns each number of a range of 4^k into another one, each into its own. What it gives beyond the
bound is put in again until it is below (cycle walking): on average fewer than four times.
"""

from __future__ import annotations

import hashlib

_ROUNDS = 4


def shuffled(index: int, total: int, seed: int) -> int:
    """The number at this place of the order. All places below `total` together have all numbers below it."""
    half = max(1, ((total - 1).bit_length() + 1) // 2)
    while True:
        index = _turned(index, half, seed)
        if index < total:
            return index


def _turned(number: int, half: int, seed: int) -> int:
    mask = (1 << half) - 1
    left, right = number >> half, number & mask
    for turn in range(_ROUNDS):
        digest = hashlib.shake_256(f"{seed}/{turn}/{right}".encode()).digest(half // 8 + 1)
        left, right = right, left ^ (int.from_bytes(digest, "big") & mask)
    return left << half | right
