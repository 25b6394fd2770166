"""What is kept on this host for the runs to come, for people: entries of the cache, and images that were loaded from
archives. How much each takes, since when it is there, when it was used last, and whether something uses it now.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any, Dict, List, Tuple

from agents.runner.cache.store import BLOBS, KINDS, USERS, Cache
from agents.runner.files import read_json, write_file
from agents.runner.home import Home, is_key
from agents.runner.linux import give_way
from agents.runner.runtimes.engine_commands import ENGINES
from agents.runner.runtimes.loaded_images import loaded_images, remove_loaded

# As many lines as fit into one message.
MOST = 300
# A tree of very many files is measured the next time, if all before took that long.
MEASURE_S = 120.0
# Notes beside what they are about: neither they nor their size are worth a line.
TOLD = tuple(kind for kind in KINDS if kind != USERS)
_SIZES = "sizes"

Line = Tuple[str, str, Any, int, int, bool]


def what_is_kept(home: Home) -> Dict[str, Any]:
    """`kept`: [kind, key, bytes or null, since, used, whether it is used now], the last used first; `left_out`: how
    many more there are."""
    give_way()
    lines = [*_entries(Cache(home)), *((*line, False) for line in loaded_images(home))]
    lines.sort(key=lambda line: -line[4])
    return {"kept": lines[:MOST], "left_out": max(0, len(lines) - MOST)}


def check_name(kind: str, key: str) -> None:
    """Raises ValueError for what is no entry: it becomes a path, or a word on a command line."""
    if kind not in (*TOLD, *ENGINES) or not is_key(key):
        raise ValueError("nothing is kept by this name: %.20r %.100r" % (kind, key))


def discard(home: Home, kind: str, key: str) -> str:
    """Remove one entry that nothing uses. Why it stays, for people; "" if it is gone."""
    check_name(kind, key)
    if kind in ENGINES:
        return remove_loaded(home, kind, key)
    cache = Cache(home)
    path = cache.path(kind, key) + ".lock"
    if not os.path.lexists(path):
        return ""
    fd = cache.try_to_own(kind, key)
    if fd < 0:
        return "it is in use on the host"
    try:
        cache.delete(kind, key)
        with contextlib.suppress(OSError):
            os.unlink(path)
    finally:
        os.close(fd)
    return "a part of it could not be deleted" if cache.has(kind, key) else ""


def _entries(cache: Cache) -> List[Line]:
    known, sizes, found = read_json(os.path.join(cache.base, _SIZES)) or {}, {}, []
    until = time.monotonic() + MEASURE_S
    for used, kind, key in sorted(cache.entries(), reverse=True):
        with contextlib.suppress(OSError):  # thrown away meanwhile, or still being made
            seen = os.lstat(cache.path(kind, key))
            if kind not in TOLD or (kind != BLOBS and not os.path.isdir(cache.path(kind, key))):
                continue
            name, state = "%s/%s" % (kind, key), [seen.st_ino, seen.st_mtime_ns]
            old = known.get(name)
            if isinstance(old, list) and old[:2] == state:
                size = old[2]
            elif kind == BLOBS:
                size = seen.st_size
            else:
                size = bytes_below(cache.path(kind, key), until)
            if size is not None:
                sizes[name] = [*state, size]
            found.append((kind, key, size, int(seen.st_mtime), int(used), is_used(cache, kind, key)))
    if sizes != known and os.path.isdir(cache.base):
        with contextlib.suppress(OSError):
            write_file(os.path.join(cache.base, _SIZES), json.dumps(sizes).encode())
    return found


def is_used(cache: Cache, kind: str, key: str) -> bool:
    fd = cache.try_to_own(kind, key)
    if fd >= 0:
        os.close(fd)
    return fd < 0


def bytes_below(place: str, until: float) -> Any:
    """What the files below take on the disk; None if there was no time to see all."""
    total = 0
    for directory, _, files in os.walk(place):
        if time.monotonic() > until:
            return None
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(directory, name)).st_blocks * 512
    return total
