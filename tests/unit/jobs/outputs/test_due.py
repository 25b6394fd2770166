"""What is due: which rows a look finds, while other workers have rows of their own."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from jobs.models import HostOutputs, Job, OutputStage, Run
from jobs.outputs import claiming, due
from jobs.rules.lifecycle.states import JobState, RunPhase
from tests.harness.races import race

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def put(monkeypatch, connections):
    """The rows that the mover of this process was given."""
    found = []
    monkeypatch.setattr(due.mover, "put", found.append)
    return found


@pytest.fixture
def row(begin, add_files, put):
    """Of a job whose only run has closed."""
    begin(add_files())
    Run.objects.update(phase=RunPhase.CLOSED, metrics_proof="read")
    HostOutputs.objects.update(due_at=None)
    return HostOutputs.objects.get()


def look():
    due.move_due(timezone.now())


def settled(**changes):
    """All of it was stored before the job was over."""
    Job.every.update(state=JobState.CANCELLED, ended_at=timezone.now())
    HostOutputs.objects.update(stage=OutputStage.ENDING, settled_at=timezone.now(), **changes)


def test_a_row_ends_when_its_last_run_has_closed(row, put):
    Run.objects.update(phase=RunPhase.RUNNING)
    look()
    row.refresh_from_db()
    assert (row.stage, put) == (OutputStage.WRITING, [])
    Run.objects.update(phase=RunPhase.CLOSED)
    look()
    before = row.serial
    row.refresh_from_db()
    assert (row.stage, row.serial, put) == (OutputStage.ENDING, before + 1, [row.pk])


def test_what_was_settled_is_looked_at_once_more_when_the_job_is_over_and_its_metrics_are_read(row, put):
    """The host reads files of TensorBoard from there, so it does not delete them before."""
    HostOutputs.objects.update(stage=OutputStage.ENDING, settled_at=timezone.now())
    look()
    assert put == [], "the job goes on"
    settled()
    Run.objects.update(metrics_proof="")
    look()
    assert put == []
    Run.objects.update(metrics_proof="read")
    look()
    assert put == [row.pk]


def test_a_row_that_waits_for_its_time_is_not_put(row, put):
    settled(due_at=timezone.now() + timedelta(seconds=60))
    look()
    assert put == []


def test_a_row_that_another_worker_has_claimed_meanwhile_stays_with_it(row, put):
    """A hint brings several workers here at the same time."""
    settled()

    def claims():
        HostOutputs.objects.update(due_at=timezone.now())
        assert claiming.claim(row.pk) is not None

    assert race(look, claims, before="UPDATE jobs_hostoutputs") == (None, None)
    row.refresh_from_db()
    assert row.due_at > timezone.now() and put == []


def test_a_row_that_another_worker_has_stored_meanwhile_does_not_end_again(row, put):
    def stores():
        HostOutputs.objects.update(stage=OutputStage.STORED, settled_at=timezone.now())

    assert race(look, stores, before="UPDATE jobs_hostoutputs") == (None, None)
    row.refresh_from_db()
    assert (row.stage, row.due_at, put) == (OutputStage.STORED, None, [])
