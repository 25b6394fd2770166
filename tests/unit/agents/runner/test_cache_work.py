"""A preparation of the cache: it waits for the bytes that are shipped, and makes its entry once."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from agents.runner.cache import work as cache_work
from agents.runner.cache.store import BLOBS, TREES, Cache
from agents.runner.cache.work import is_prepared, prepare_entry
from agents.runner.home import Home
from agents.runner.preparations.long_programs import Unprepared
from tests.unit.agents.runner.hostile_archives import REFUSED, tar

KEY = "f" * 64
DATA = tar(("train.py", {"data": b"print(1)\n"}))
SHA = hashlib.sha256(DATA).hexdigest()
DOCUMENT = {"blob": SHA, "blobs": [{"sha256": SHA, "size": len(DATA)}]}


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    home = Home("dep")
    home.make()
    Cache(home).make(BLOBS)
    return home


@pytest.fixture
def prepare(home, tmp_path):
    def prepare(document=DOCUMENT, kind="tree", key=KEY, report=lambda *told: None):
        return prepare_entry(home, kind, key, document, str(tmp_path / "output"), report)

    return prepare


def ship(home, data=DATA, part=False):
    path = Path(Cache(home).path(BLOBS, hashlib.sha256(DATA).hexdigest()) + (".part" if part else ""))
    path.write_bytes(data)
    return path


def test_it_waits_for_the_bytes_and_tells_how_many_have_come(home, prepare):
    told = []
    thread = threading.Thread(target=lambda: prepare(report=lambda *words: told.append(words)))
    thread.start()
    until = time.monotonic() + 60
    while not told and time.monotonic() < until:
        time.sleep(0.01)
    part = ship(home, DATA[:1000], part=True)
    while (1000, len(DATA), "bytes") not in told and time.monotonic() < until:
        time.sleep(0.01)
    assert told[0] == (0, len(DATA), "bytes") and told[1] == (1000, len(DATA), "bytes")
    part.write_bytes(DATA)
    os.rename(part, str(part)[: -len(".part")])
    thread.join(60)
    assert is_prepared(home, "tree", KEY)
    assert Path(Cache(home).path(TREES, KEY), "train.py").read_bytes() == b"print(1)\n"


def test_what_is_complete_needs_no_bytes_again(home, prepare):
    path = ship(home)
    prepare()
    path.unlink()
    assert prepare() == {}


def test_two_at_once_make_it_once(home, prepare):
    ship(home)
    made = []
    unpack_blob = cache_work.make_tree.__globals__["unpack_blob"]

    def counted(*arguments):
        made.append(True)
        unpack_blob(*arguments)

    cache_work.make_tree.__globals__["unpack_blob"] = counted
    try:
        threads = [threading.Thread(target=prepare) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        cache_work.make_tree.__globals__["unpack_blob"] = unpack_blob
    assert len(made) == 1 and is_prepared(home, "tree", KEY)


def test_what_a_killed_preparation_left_is_made_anew(home, prepare):
    ship(home)
    Cache(home).make(TREES)
    half = Path(Cache(home).path(TREES, KEY) + ".part")
    half.mkdir()
    (half / "half").write_text("x")
    assert not is_prepared(home, "tree", KEY)
    prepare()
    assert os.listdir(Cache(home).path(TREES, KEY)) == ["train.py"] and not half.exists()


def test_a_hostile_archive_is_the_users_error_and_leaves_nothing(home, prepare):
    data = REFUSED["links that lead out together"][0]()
    Path(Cache(home).path(BLOBS, SHA)).write_bytes(data)
    with pytest.raises(Unprepared, match="is not unpacked: its entry .* leads out") as refused:
        prepare()
    assert refused.value.whose == "user" and os.listdir(Path(Cache(home).base, "trees")) == [KEY + ".lock"]


def test_a_full_disk_is_a_fault_of_the_host(home, prepare, monkeypatch):
    ship(home)
    monkeypatch.setattr("agents.runner.cache.unpack.free_bytes", lambda path: 0)
    with pytest.raises(Unprepared, match="disk of this host is full") as refused:
        prepare()
    assert (refused.value.whose, refused.value.reason) == ("host", "disk_full")


def test_a_console_that_ships_nothing_is_not_waited_for_for_ever(prepare, monkeypatch):
    monkeypatch.setattr(cache_work, "SILENT_S", 0.3)
    with pytest.raises(Unprepared, match="shipped nothing"):
        prepare()


def test_a_console_that_is_there_may_ship_to_others_first(prepare, home, monkeypatch):
    """Of many hosts a few get files at a time. What was shipped last may wait for longer than a console is away."""
    monkeypatch.setattr(cache_work, "SILENT_S", 0.5)
    monkeypatch.setattr(cache_work, "BUSY_S", 2.0)
    looks = []

    def sleep(seconds):
        looks.append(seconds)
        with open(home.mark, "w") as file:
            file.write("x")
        os.utime(home.mark, ns=(len(looks), len(looks)))
        time.sleep(seconds)

    monkeypatch.setattr(cache_work, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
    with pytest.raises(Unprepared, match="shipped nothing"):
        prepare()
    assert sum(looks) > 1.5


@pytest.mark.parametrize(
    ("kind", "key", "document"),
    [("run", KEY, {}), ("tree", "../x", {}), ("tree", KEY, {"blobs": [{"sha256": "../x", "size": 1}]})],
)
def test_other_names_are_refused(prepare, kind, key, document):
    with pytest.raises(Unprepared):
        prepare(document, kind, key)
