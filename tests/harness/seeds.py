"""The seeds of tests with chance: `SEED` repeats one, and the seed of each test that begins is kept.

tools/run-tests reads the file that `TRAINYARD_TEST_SEEDS` names, also after a test process that crashed.
"""

from __future__ import annotations

import json
import os
import random


def draw() -> int:
    return int(os.environ.get("SEED") or 0) or random.SystemRandom().randrange(1, 10**6)


def keep(test: str, seed: int) -> None:
    if path := os.environ.get("TRAINYARD_TEST_SEEDS"):
        with open(path, "a") as kept:
            kept.write(json.dumps([test, seed]) + "\n")
