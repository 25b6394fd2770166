"""The work queue: work is done at once, or a moment later together with what comes meanwhile."""

from __future__ import annotations

import threading

import pytest

from agents.links.work_queue import WorkQueue
from tests.harness.wait_and_processes import wait_for


class Item:
    def __init__(self):
        self.times = 0
        self.at_work, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()

    def do_work(self):
        self.times += 1
        self.at_work.set()
        self.go_on.wait(30)
        return False


@pytest.fixture
def work_queue():
    work_queue = WorkQueue(2)
    yield work_queue
    work_queue.stop()


def test_work_for_later_is_done_at_once_when_it_is_queued_again(work_queue):
    patient, other = Item(), Item()
    work_queue.enqueue(patient, 3600)
    work_queue.enqueue(other)
    wait_for(lambda: other.times == 1, "the work of the other")
    assert patient.times == 0
    work_queue.enqueue(patient)
    wait_for(lambda: patient.times == 1, "its work now")
    work_queue.enqueue(other, 0.02)
    work_queue.enqueue(other, 0.02)
    wait_for(lambda: other.times == 2, "its work a moment later")
    assert not work_queue._later and patient.times == 1


def test_work_that_waits_long_is_done_with_work_that_waits_less(work_queue):
    item = Item()
    work_queue.enqueue(item, 3600)
    work_queue.enqueue(item, 0.02)
    wait_for(lambda: item.times == 1, "its work after the shorter time")
    work_queue.enqueue(item, 0.02)
    work_queue.enqueue(item, 3600)
    wait_for(lambda: item.times == 2, "its work after the shorter time")
    assert not work_queue._later


def test_work_that_is_queued_while_it_is_done_is_done_again(work_queue):
    item = Item()
    item.go_on.clear()
    work_queue.enqueue(item)
    assert item.at_work.wait(30)
    work_queue.enqueue(item, 0.01)
    wait_for(lambda: not work_queue._later, "the moment to be over")
    assert item.times == 1  # an item is never worked on twice at a time
    item.go_on.set()
    wait_for(lambda: item.times == 2, "its second work")


def test_the_oldest_work_is_known_while_it_is_done_and_while_it_waits(work_queue):
    assert work_queue.oldest_work() == (None, 0.0) and work_queue.threads_gone() == 0
    slow = [Item(), Item(), Item()]
    for item in slow:
        item.go_on.clear()
        work_queue.enqueue(item)
    wait_for(lambda: work_queue.oldest_work()[1] > 0.2, "the first two to be old")
    assert work_queue.oldest_work()[0] in slow
    for item in slow[:2]:
        item.go_on.set()
    wait_for(lambda: work_queue.oldest_work()[0] is slow[2], "the one that waited to be the oldest")
    slow[2].go_on.set()
    wait_for(lambda: work_queue.oldest_work()[0] is None, "no work")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_worker_thread_that_dies_is_counted(work_queue):
    class Deadly:
        def do_work(self):
            raise SystemExit

    work_queue.enqueue(Deadly())
    wait_for(lambda: work_queue.threads_gone() == 1, "the thread to be missed")
