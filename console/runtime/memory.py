"""Gives memory back to the system, and keeps the garbage collector short.

Without this, glibc keeps what a storm of sockets and shells has used.

Each thread that allocates gets an arena of its own, up to eight for each processor, and a freed block at the top of an
arena is given back, but not one below. So this process has few arenas, and trims them once in a while.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import threading
import time

from django.urls import get_resolver

TRIM_EVERY_S = 30.0
MAX_ARENAS = 2
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


def _trim_for_ever(trim: ctypes._NamedFuncPointer) -> None:
    while True:
        time.sleep(TRIM_EVERY_S)
        trim(0)
