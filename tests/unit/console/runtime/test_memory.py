"""Memory that a storm of sockets used is given back."""

from __future__ import annotations

import gc
import weakref

from console.runtime import memory


class Leftover:
    """As a socket of uvicorn leaves it: in a cycle."""

    def __init__(self):
        self.own = self


def test_what_sockets_left_is_collected_when_many_have_ended():
    gc.collect()
    gc.disable()
    try:
        left = weakref.ref(Leftover())
        assert memory.collect_after_storm(1_000, 900) == 1_000 and left() is not None
        assert memory.collect_after_storm(1_000, 1_100) == 1_100 and left() is not None
        assert memory.collect_after_storm(1_100, 40) == 40 and left() is None
        assert memory.collect_after_storm(40, 20) == 40, "too few to hold up the process for"
    finally:
        gc.enable()
