"""What a host tells of what it keeps, and the removal of an entry that nothing uses."""

from __future__ import annotations

import os
import time

import pytest

from agents.links.frame_limits import FrameLimits
from agents.runner.cache.kept import MOST, bytes_below, discard, what_is_kept
from agents.runner.cache.store import BLOBS, ENVIRONMENTS, IMAGES, TREES, USERS, Cache
from agents.runner.home import Home
from agents.runner.runtimes.loaded_images import name_of_archive, note_use, place_of_notes
from agents.runner.wire import encode
from tests.unit.agents.runner.protocol_client import wait_for
from tests.unit.agents.runner.runtimes.test_loaded_images import IN_USE, Engine

A, B, C = ("a" * 64, "b" * 64, "c" * 64)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("agents.runner.cache.kept.give_way", lambda: None)  # not for all tests that follow
    found = Home("dep")
    found.make()
    return found


@pytest.fixture
def cache(home):
    return Cache(home)


@pytest.fixture
def engine(tmp_path, monkeypatch):
    (tmp_path / "engine").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "engine"))
    return Engine(tmp_path / "engine")


def put(cache, kind, key, age_s=0, data=b"x" * 5000):
    """An entry that was made and used so long ago."""
    os.close(cache.lock(kind, key))
    path = cache.path(kind, key)
    at = int(time.time()) - age_s
    if kind == BLOBS:
        with open(path, "wb") as file:
            file.write(data)
    else:
        os.makedirs(os.path.join(path, "deep"))
        with open(os.path.join(path, "deep", "file"), "wb") as file:
            file.write(data)
    os.utime(path, (at, at))
    os.utime(path + ".lock", (at, at))
    return at


def test_each_entry_has_its_size_its_times_and_whether_it_is_used(home, cache):
    blob, tree, environment = (
        put(cache, BLOBS, A, 300),
        put(cache, TREES, B, 200),
        put(cache, ENVIRONMENTS, C, 100),
    )
    with cache.locked(TREES, B, shared=True):
        os.utime(cache.path(TREES, B) + ".lock", (tree, tree))
        told = what_is_kept(home)
    assert told == {
        "kept": [
            (ENVIRONMENTS, C, 8192, environment, environment, False),
            (TREES, B, 8192, tree, tree, True),
            (BLOBS, A, 5000, blob, blob, False),
        ],
        "left_out": 0,
    }


def test_notes_and_what_is_still_made_are_left_out(home, cache):
    os.close(cache.lock(TREES, A))
    os.makedirs(cache.path(TREES, A) + ".part")
    cache.make(IMAGES), cache.make(USERS)
    for kind in (IMAGES, USERS):
        os.close(cache.lock(kind, B))
        with open(cache.path(kind, B), "w") as file:
            file.write("{}")
    assert what_is_kept(home)["kept"] == []


def test_a_tree_is_measured_once(home, cache, monkeypatch):
    put(cache, TREES, A)
    first = what_is_kept(home)
    monkeypatch.setattr("agents.runner.cache.kept.bytes_below", lambda place, until: pytest.fail("again"))
    assert what_is_kept(home) == first


def test_what_takes_too_long_to_measure_has_no_size_yet(home, cache):
    put(cache, TREES, A)
    assert bytes_below(cache.path(TREES, A), time.monotonic() - 1) is None


def test_more_than_fits_into_a_message_is_counted(home, cache):
    for number in range(MOST + 3):
        put(cache, BLOBS, f"{number:064x}", number)
    told = what_is_kept(home)
    assert (len(told["kept"]), told["left_out"]) == (MOST, 3)
    assert told["kept"][0][1] == f"{0:064x}"


def test_loaded_images_are_told_with_the_time_since_which_they_are_here(home, engine):
    note_use(home, "podman", name_of_archive(A), 12345)
    path = os.path.join(place_of_notes(home), f"podman-{A}")
    [before] = what_is_kept(home)["kept"]
    os.utime(path, (1, 1))
    note_use(home, "podman", name_of_archive(A))  # by a run, which knows no size
    [line] = what_is_kept(home)["kept"]
    assert line == before and line[:3] == ("podman", A, 12345) and line[3] > time.time() - 60


def test_what_nothing_uses_is_removed_and_what_is_used_stays(home, cache):
    for kind in (BLOBS, TREES, ENVIRONMENTS):
        put(cache, kind, A)
        with cache.locked(kind, A, shared=True):
            assert discard(home, kind, A) == "it is in use on the host" and cache.has(kind, A)
        assert discard(home, kind, A) == "" and not cache.has(kind, A)
        assert discard(home, kind, A) == "", "it is gone already"
        assert not os.listdir(os.path.join(cache.base, kind))


def test_an_image_of_which_there_is_a_container_stays_with_the_words_of_the_engine(home, engine):
    note_use(home, "podman", name_of_archive(A))
    engine.says(IN_USE, 1)
    assert discard(home, "podman", A) == IN_USE
    engine.says("")
    assert discard(home, "podman", A) == "" and not os.listdir(place_of_notes(home))


@pytest.mark.parametrize(("kind", "key"), [("runs", A), (BLOBS, "../x"), ("podman", "../x"), ("work", "x")])
def test_nothing_else_is_removed(home, kind, key):
    with pytest.raises(ValueError):
        discard(home, kind, key)


@pytest.fixture
def console(host):
    console = host.connect()
    console.hello()
    return console


def test_a_console_is_told_when_it_asks_and_what_it_removes_is_told_at_once(host, console):
    base = host.home / ".trainyard" / "dep" / "cache" / "blobs"
    base.mkdir(parents=True)
    for name in (A, f"{A}.lock"):
        (base / name).write_bytes(b"x" * 5000)
    console.say("watch", gpus=[], kept=True)
    assert [line[:3] for line in console.hear("kept", patience=30)["kept"]] == [["blobs", A, 5000]]
    console.write(encode({"t": "discard", "kind": "blobs", "key": A}))
    assert console.hear("discarded") == {"t": "discarded", "kind": "blobs", "key": A, "why": ""}
    assert console.hear("kept", patience=30)["kept"] == []
    assert not os.listdir(base)
    console.write(encode({"t": "discard", "kind": "runs", "key": A}))
    assert "nothing is kept by this name" in console.hear("error")["message"]


def test_two_hundred_removals_at_once_are_done_and_keep_the_limits_of_the_link(host, console):
    base = host.home / ".trainyard" / "dep" / "cache" / "blobs"
    base.mkdir(parents=True)
    keys = [f"{number:064x}" for number in range(200)]
    for key in keys:
        (base / key).write_bytes(b"x")
        (base / f"{key}.lock").write_bytes(b"")
    console.say("watch", gpus=[], kept=True)
    assert len(console.hear("kept", patience=30)["kept"]) == 200
    limits = FrameLimits()
    for frame in ({"t": "hello"}, {"t": "inventory", "runs": [], "last": True}):
        limits.admit(frame, b"", ())
    for key in [*keys, keys[-1]]:
        limits.note_removal("blobs", key)
        console.write(encode({"t": "discard", "kind": "blobs", "key": key}))
    console.hear("discarded", lambda frame: frame["key"] == keys[-1] and not console.read(0.1))
    wait_for(
        lambda: console.read(0.1) or console.heard[-1].get("kept") == [], "it tells that nothing is left"
    )
    frames = [frame for frame in console.heard if frame["t"] in ("discarded", "kept", "error")]
    assert all(limits.admit(frame, b"", ()) for frame in frames)
    assert [frame["key"] for frame in frames if frame["t"] == "discarded"] == keys[:-1]
    assert len(frames) - len(keys) < 20 and not os.listdir(base), "it tells now and then what is left"
