"""A Python environment of the cache as runs use it: whether it is complete."""

from __future__ import annotations

import os
from typing import Any, List

from agents.runner.cache.store import ENVIRONMENTS, Cache
from agents.runner.files import read_json

STAMP = "trainyard.json"


def is_ready(cache: Cache, key: str) -> bool:
    """Whether the environment is here, and its Python is still the one that it was made with."""
    stamp = read_json(os.path.join(cache.path(ENVIRONMENTS, key), STAMP))
    return stamp is not None and stamp.get("interpreter") == identity(str(stamp.get("python")))


def identity(python: str) -> List[Any]:
    """What changes when the host gets another Python at the same place."""
    try:
        found = os.stat(python)
    except OSError:
        return []
    return [os.path.realpath(python), found.st_size, int(found.st_mtime)]
