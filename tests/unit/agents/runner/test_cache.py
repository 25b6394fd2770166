"""The cache of a host: one maker at a time, nothing thrown away that a run uses, room made when there is none."""

from __future__ import annotations

import os
import threading
import time

import pytest

from agents.runner.cache import store as caching
from agents.runner.cache.store import BLOBS, ENVIRONMENTS, TREES, UNUSED_S, UNUSED_SHORT_S, Cache
from agents.runner.home import Home

A, B, C = ("a" * 64, "b" * 64, "c" * 64)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    home = Home("dep")
    home.make()
    monkeypatch.setattr(Cache, "is_disk_short", lambda self: False)
    return Cache(home)


def put(cache, kind, key, age_s=0.0):
    """An entry that was used so long ago."""
    os.close(cache.lock(kind, key))
    path = cache.path(kind, key)
    if kind == BLOBS:
        with open(path, "w") as file:
            file.write("x")
    else:
        os.makedirs(os.path.join(path, "deep", "er"))
        os.chmod(os.path.join(path, "deep"), 0o500)
    used = time.time() - age_s
    os.utime(path + ".lock", (used, used))


def names(cache, kind):
    return sorted(os.listdir(os.path.join(cache.base, kind)))


def test_what_was_not_used_for_long_goes_and_the_rest_stays(cache):
    put(cache, BLOBS, A, UNUSED_S + 60)
    put(cache, TREES, B, UNUSED_S + 60)
    put(cache, ENVIRONMENTS, C, UNUSED_S - 60)
    assert sorted(cache.throw_away(time.time())) == [f"blobs/{A}", f"trees/{B}"]
    assert names(cache, BLOBS) == names(cache, TREES) == [] and cache.has(ENVIRONMENTS, C)


def test_what_a_run_uses_stays_however_old(cache):
    put(cache, ENVIRONMENTS, A, UNUSED_S * 2)
    held = cache.lock(ENVIRONMENTS, A, shared=True)
    os.utime(cache.path(ENVIRONMENTS, A) + ".lock", (1, 1))
    assert cache.throw_away(time.time()) == [] and cache.has(ENVIRONMENTS, A)
    os.close(held)
    assert cache.throw_away(time.time()) == [f"environments/{A}"]


def test_a_use_makes_an_entry_young_again(cache):
    put(cache, BLOBS, A, UNUSED_S * 2)
    with cache.locked(BLOBS, A, shared=True):
        pass
    assert cache.throw_away(time.time()) == []


def test_a_short_use_between_the_look_and_the_lock_saves_an_entry(cache, monkeypatch):
    put(cache, TREES, A, UNUSED_S * 2)
    listed = cache.entries()
    os.close(cache.lock(TREES, A, shared=True))
    monkeypatch.setattr(Cache, "entries", lambda self: listed)
    assert cache.throw_away(time.time()) == [] and cache.has(TREES, A)


def test_on_a_short_disk_the_longest_unused_goes_first_until_there_is_room(cache, monkeypatch):
    for key, age in ((A, 3), (B, 2), (C, 0.5)):
        put(cache, BLOBS, key, age * UNUSED_SHORT_S)
    monkeypatch.setattr(Cache, "is_disk_short", lambda self: cache.has(BLOBS, A))
    assert cache.throw_away(time.time()) == [f"blobs/{A}"]
    monkeypatch.setattr(Cache, "is_disk_short", lambda self: True)
    assert cache.throw_away(time.time()) == [f"blobs/{B}"], "what was used within the hour stays"


def test_one_maker_at_a_time_and_many_users(cache):
    maker = cache.lock(TREES, A)
    assert cache.lock(TREES, A) == -1 and cache.lock(TREES, A, shared=True) == -1
    os.close(maker)
    users = [cache.lock(TREES, A, shared=True) for _ in range(3)]
    assert all(user >= 0 for user in users) and cache.lock(TREES, A) == -1
    for user in users:
        os.close(user)


def test_a_lock_of_an_entry_that_was_just_thrown_away_is_not_taken_for_the_entrys(cache, monkeypatch):
    """The file is replaced between its opening and its locking."""
    put(cache, BLOBS, A)
    path = cache.path(BLOBS, A) + ".lock"
    flock, replaced = caching.fcntl.flock, []

    def replace(fd, how):
        if not replaced:
            replaced.append(True)
            os.unlink(path)
        return flock(fd, how)

    monkeypatch.setattr(caching.fcntl, "flock", replace)
    fd = cache.lock(BLOBS, A)
    assert os.fstat(fd).st_ino == os.stat(path).st_ino
    os.close(fd)


@pytest.mark.parametrize("key", ["../x", "a" * 63, "A" * 64, "", None, 7, "a" * 64 + "\n", ".." + "a" * 62])
def test_only_digests_become_paths(cache, key):
    with pytest.raises(ValueError, match="not in the cache"):
        cache.path(BLOBS, key)
    with pytest.raises(ValueError, match="not in the cache"):
        cache.path("runs", A)


def test_links_in_a_tree_are_not_followed_when_it_is_deleted(cache, tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir(mode=0o500)
    put(cache, TREES, A, UNUSED_S * 2)
    os.symlink(precious, os.path.join(cache.path(TREES, A), "link"))
    cache.throw_away(time.time())
    assert not cache.has(TREES, A) and precious.stat().st_mode & 0o777 == 0o500


def test_what_a_killed_process_left_beside_an_entry_goes_with_it(cache):
    put(cache, ENVIRONMENTS, A, UNUSED_S * 2)
    for beside in (".part", ".part.secrets", ".packages"):
        os.makedirs(cache.path(ENVIRONMENTS, A) + beside + "/0")
    cache.throw_away(time.time())
    assert names(cache, ENVIRONMENTS) == []


def test_who_shares_an_entry_waits_for_one_who_has_it_alone_for_a_moment(cache):
    put(cache, TREES, A)
    owner = cache.try_to_own(TREES, A)
    threading.Timer(0.2, os.close, (owner,)).start()
    held = cache.share(TREES, A, 10)
    assert held >= 0
    os.close(held)


def test_who_shares_an_entry_gives_up_in_the_end(cache):
    put(cache, TREES, A)
    owner = cache.try_to_own(TREES, A)
    assert cache.share(TREES, A, 0.05) == -1
    os.close(owner)


def test_what_was_half_written_when_its_writer_was_killed_goes_with_the_entry(cache):
    put(cache, BLOBS, A, UNUSED_S + 60)
    put(cache, BLOBS, B)
    for key in (A, B):
        with open(f"{cache.path(BLOBS, key)}.new.4711", "w") as file:
            file.write("{")
    assert cache.throw_away(time.time()) == [f"blobs/{A}"]
    assert names(cache, BLOBS) == [B, f"{B}.lock", f"{B}.new.4711"]
