"""Work directories of runs that are forgotten: kept for a day, and for minutes where the disk is short of room. What
other runners left beside their archives: drafts for an hour, compiled modules for two weeks."""

from __future__ import annotations

import os
import time

import pytest

from agents.runner.compiled import DRAFT, ENDING, file_of
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


def test_what_others_have_compiled_goes_after_two_weeks(home, tmp_path):
    """By any date: one of the future is of a clock that was set. They make it anew if they need it."""
    programs = tmp_path / ".trainyard/bin"
    programs.mkdir()
    own = programs / ("a" * 64 + ".pyz")
    ages = {
        own.name: 400 * 24 * HOUR,
        os.path.basename(file_of(str(own))): 400 * 24 * HOUR,
        f"new{ENDING}": 13 * 24 * HOUR,
        f"old{ENDING}": 15 * 24 * HOUR,
        f"future{ENDING}": -15 * 24 * HOUR,
        f"{DRAFT}new": HOUR / 2,
        f"{DRAFT}old": 2 * HOUR,
        ".put-old": 2 * HOUR,
    }
    for name, age_s in ages.items():
        (programs / name).write_bytes(b"x")
        os.utime(programs / name, (time.time() - age_s,) * 2)
    (programs / f"directory{ENDING}").mkdir()
    os.utime(programs / f"directory{ENDING}", (0, 0))
    cleanup.sweep_programs(home, f".trainyard/bin/{own.name}")
    gone = {f"old{ENDING}", f"future{ENDING}", f"{DRAFT}old", ".put-old"}
    assert {path.name for path in programs.iterdir()} == ages.keys() - gone | {f"directory{ENDING}"}
    cleanup.sweep_programs(home, "runner.py")  # a runner whose name says nothing keeps nothing
    assert not os.path.exists(file_of(str(own)))
