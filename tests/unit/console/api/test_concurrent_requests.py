"""Many scripts submit while others write: it may be slower, but no script sees an error and no job is lost."""

from __future__ import annotations

import threading
import time

import pytest
from django.db import connection, transaction

from jobs.models import Job, Project
from tests.unit.console.api.conftest import JOBS
from tests.unit.console.views.example_rows import document

WRITERS, EACH = 8, 5


@pytest.mark.django_db(transaction=True)
def test_eight_clients_beside_a_slow_transaction_lose_no_job_and_see_no_error(script):
    """Failure mode 14. On SQLite all writers queue for one lock. The labels of a job say which request made it."""
    client, answers, over = script("bob"), [], threading.Event()

    def hold_the_lock():
        while not over.is_set():
            with transaction.atomic():
                Project.objects.filter(name="default").update(name="default")
                time.sleep(0.05)
            time.sleep(0.01)
        connection.close()

    def post(writer):
        try:
            for number in range(EACH):
                sent = {**document(), "labels": {"request": f"{writer}-{number}"}}
                answers.append(client.post(JOBS, sent, content_type="application/json"))
        finally:
            connection.close()

    slow = threading.Thread(target=hold_the_lock)
    threads = [threading.Thread(target=post, args=(writer,)) for writer in range(WRITERS)]
    for thread in (slow, *threads):
        thread.start()
    for thread in threads:
        thread.join(60)
    over.set()
    slow.join(60)
    assert [answer.status_code for answer in answers] == [200] * (WRITERS * EACH)
    named = {
        answer.json()["labels"]["request"]: int(answer.json()["name"].split("/")[-1]) for answer in answers
    }
    assert named == {job.labels["request"]: job.pk for job in Job.objects.all()}
    assert len(named) == WRITERS * EACH
