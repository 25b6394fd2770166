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


def test_after_its_start_a_process_looks_at_all_objects_seldom(monkeypatch):
    """A page of a large deployment makes a hundred thousand objects. By Python's own numbers each would be held up."""
    before, looks = gc.get_threshold(), []

    def look(phase, info):
        if phase == "start":
            looks.append(info["generation"])

    monkeypatch.setattr(gc, "freeze", lambda: None)
    gc.callbacks.append(look)
    try:
        memory.forget_start()
        looks.clear()
        kept = [[number] for number in range(150_000)]
        looked = list(looks)
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(look)
    assert len(kept) == 150_000 and 0 < len(looked) <= 8 and set(looked) == {0}
