"""Work directories of runs that are forgotten: kept for a day, and for minutes where the disk is short of room."""

from __future__ import annotations

import os
import time

import pytest

from agents.runner.home import Home
from agents.runner.runs import cleanup

HOUR = 3600.0


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    made = Home("dep")
    made.make()
    for name, age_s in (("new", 60), ("older", 2 * HOUR), ("old", 25 * HOUR)):
        os.mkdir(os.path.join(made.work, name))
        used = time.time() - age_s
        os.utime(os.path.join(made.work, name), (used, used))
    return made


@pytest.mark.parametrize(("short", "gone"), [(False, ["old"]), (True, ["old", "older"])])
def test_a_disk_that_is_short_of_room_keeps_them_for_minutes(home, monkeypatch, short, gone):
    monkeypatch.setattr(cleanup, "is_short_of_room", lambda path: short)
    assert sorted(cleanup.expired_work(home, set())) == gone


def test_what_was_left_just_now_is_new(home, monkeypatch):
    monkeypatch.setattr(cleanup, "is_short_of_room", lambda path: True)
    assert sorted(cleanup.expired_work(home, {"old", "older"})) == []
