"""A test that leaves a thread or a process behind fails, and no other does. Nor does a shared product stay."""

from __future__ import annotations

import subprocess
import threading
from multiprocessing import shared_memory
from types import SimpleNamespace

import pytest

from tests.flows import conftest
from tests.harness import left_behind


def test_a_thread_that_goes_on_is_found_until_it_ends(monkeypatch):
    monkeypatch.setattr(left_behind, "GRACE_S", 0.2)
    before, over = left_behind.threads(), threading.Event()

    def goes_on():
        over.wait(60)

    thread = threading.Thread(target=goes_on, name="goes on")
    thread.start()
    try:
        left = left_behind.still_there(left_behind.threads, before)
        assert left == {thread} and "thread 'goes on'" in left_behind.described(left)
    finally:
        over.set()
        thread.join(30)
    assert left_behind.still_there(left_behind.threads, before) == set()


def test_a_process_that_goes_on_is_found_and_one_that_ends_in_time_is_not(monkeypatch):
    before = left_behind.children()
    with subprocess.Popen(["sleep", "0.3"]):
        assert left_behind.still_there(left_behind.children, before) == set(), "it has some seconds"
    monkeypatch.setattr(left_behind, "GRACE_S", 0.2)
    with subprocess.Popen(["sleep", "600"]) as process:
        left = left_behind.still_there(left_behind.children, before)
        assert left == {process.pid} and "(sleep 600)" in left_behind.described(left)
        process.kill()


def test_what_python_itself_starts_for_shared_memory_is_not_left_by_a_test():
    before = left_behind.children()
    memory = shared_memory.SharedMemory(create=True, size=16)
    memory.close()
    memory.unlink()
    assert left_behind.still_there(left_behind.children, before) == set()


@pytest.mark.parametrize(
    "fixtures, closed", [(["yard", "shared_product"], []), (["tmp_path"], ["closed"]), (None, ["closed"])]
)
def test_a_shared_product_is_closed_when_the_next_test_does_not_use_it(monkeypatch, fixtures, closed):
    done = []
    monkeypatch.setattr(conftest, "leave_private_network", lambda: None)
    monkeypatch.setattr(conftest.THE_STAGE, "clear", lambda: done.append("closed"))
    following = None if fixtures is None else SimpleNamespace(fixturenames=fixtures)
    teardown = conftest.pytest_runtest_teardown(None, following)
    next(teardown)
    assert done == [], "the test's own fixtures still need it"
    with pytest.raises(StopIteration):
        teardown.send(None)
    assert done == closed
