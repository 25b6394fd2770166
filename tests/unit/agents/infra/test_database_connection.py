"""A thread keeps its database connection from one piece of work to the next, and gives it back when it has none."""

from __future__ import annotations

import threading

import pytest
from django.db import connection

from agents.infra import database_connection
from agents.links import work_queue
from agents.links.work_queue import WorkQueue

pytestmark = pytest.mark.django_db(transaction=True)


class Question:
    """A piece of work that asks the database, and tells on which connection."""

    def __init__(self):
        self.done = threading.Semaphore(0)
        self.seen = []

    def do_work(self):
        with database_connection.database_connection(), connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            self.seen.append((threading.current_thread(), connection.connection))
        self.done.release()
        return False


def test_a_busy_thread_keeps_its_connection_and_an_idle_one_gives_it_back(monkeypatch):
    given_back = threading.Event()

    def give_back():
        database_connection.give_back()
        assert (connection.connection is None) == (connection.vendor == "postgresql")
        given_back.set()

    monkeypatch.setattr(work_queue, "give_back", give_back)
    monkeypatch.setattr(work_queue, "KEEP_S", 1.0)
    queue, question = WorkQueue(1), Question()
    try:
        for _ in range(3):
            queue.enqueue(question)
            assert question.done.acquire(timeout=10)
        (thread, first), *others = question.seen
        assert all(each == (thread, first) for each in others) and first is not None
        assert given_back.wait(10)
    finally:
        queue.stop()


def test_a_connection_that_an_error_made_unusable_is_not_kept():
    with pytest.raises(ZeroDivisionError), database_connection.database_connection():
        connection.ensure_connection()
        connection.connection.close()
        connection.errors_occurred = True
        raise ZeroDivisionError
    assert connection.connection is None
    with database_connection.database_connection(), connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        assert cursor.fetchone() == (1,)
