"""Gives memory back to the system, and keeps the garbage collector short.

Without this, glibc keeps what a storm of sockets and shells has used.

Each thread that allocates gets an arena of its own, up to eight for each processor, and a freed block at the top of an
arena is given back, but not one below. So this process has few arenas, and trims them once in a while.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import threading
import time

from django.urls import get_resolver

TRIM_EVERY_S = 30.0
MAX_ARENAS = 2
# After so many new objects the collector looks at them, after so many such looks at older ones too, and after so many
# of these at all objects. By Python's own numbers, 700 and 10 and 10, it looked at all of them during each page of a
# large deployment: up to a third of its processor time. A look at 20,000 new objects takes two milliseconds.
COLLECT_AFTER = 20_000, 10, 20
# So often sockets are counted between two trims; so many that have ended are a storm that is over.
LOOKS, MANY_SOCKETS = 6, 30
# M_ARENA_MAX of malloc.h.
_ARENA_MAX = -8


def keep_small() -> None:
    """Call this before threads start. Does nothing where the C library is not glibc."""
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_ARENA_MAX, MAX_ARENAS)
        trim = library.malloc_trim
        threading.Thread(target=_trim_for_ever, args=(trim,), name="memory", daemon=True).start()


def forget_start() -> None:
    """Call this when everything is loaded. The garbage collector then leaves out what lives until the end anyway: to
    look at it would hold up all threads for a tenth of a second each time.
    """
    get_resolver().url_patterns  # noqa: B018 (loads all views)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)


def collect_after_storm(most: int, now: int) -> int:
    """Collect garbage when many sockets have ended. `most`: how many were open at most since the last time.

    What a socket leaves is in cycles, and the collector by itself looks at old objects only when a quarter as many new
    ones have come: in a process that is idle, never. Returns the new `most`.
    """
    if most - now < max(MANY_SOCKETS, most // 4):
        return max(most, now)
    gc.collect()
    return now


def _trim_for_ever(trim: ctypes._NamedFuncPointer) -> None:
    most = 0
    while True:
        for _ in range(LOOKS):
            time.sleep(TRIM_EVERY_S / LOOKS)
            most = max(most, _open_files())
        most = collect_after_storm(most, _open_files())
        trim(0)


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))
