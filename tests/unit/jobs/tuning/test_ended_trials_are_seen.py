"""A study goes on as soon as the last value of a trial is here: nobody waits until it is looked at again."""

from __future__ import annotations

import pytest
from django.utils import timezone

from agents.infra.clock import Clock
from agents.links.control_plane import Arrival, Fact, MetricsEnd
from jobs.host_sync import intake
from jobs.host_sync.apply_reports import UnreadableFrames
from jobs.models import Run, Trial
from jobs.rules.metrics import journal
from jobs.rules.tuning.trials import TrialState
from jobs.tuning import advance
from jobs.wake import hints
from tests.unit.jobs.fake_hosts import frame
from tests.unit.jobs.metrics.test_metrics import CLOSED, line, piece
from tests.unit.jobs.tuning.conftest import asked

pytestmark = pytest.mark.django_db
PRINTED = b"loss=0.5\n"


@pytest.fixture
def trial(study):
    """The only trial of a study, whose program runs."""
    study.submit(asked(maxTrialCount=1, parallelTrialCount=1)).run()
    return study


@pytest.fixture
def take(trial, monkeypatch):
    """take(*what): the host sends this. Returns the tuning jobs that are looked at because of it."""

    def take(*what):
        told = []
        monkeypatch.setattr(hints, "tuning", told.extend)
        arrivals = [Arrival(Run.objects.get().pk, each) for each in what]
        intake.take(trial.host.row.pk, 7, arrivals, timezone.now(), UnreadableFrames())
        return told

    return take


def test_the_proof_of_its_reports_wakes_the_study(trial, take):
    data = line(1, 0.5)
    assert take(Fact(CLOSED | {"metrics": True}), piece(0, data)) == [trial.row.pk]
    Run.objects.update(metrics_read=None)
    assert take(MetricsEnd(len(data), journal.chained("", [data]))) == [trial.row.pk]
    assert take(MetricsEnd(len(data), journal.chained("", [data]))) == []


def test_a_run_that_goes_on_wakes_nothing(trial, take):
    assert take(piece(0, line(1, 0.5))) == []


def test_a_job_that_is_no_trial_wakes_nothing(trial, take):
    Trial.objects.all().delete()
    data = line(1, 0.5)
    assert take(Fact(CLOSED | {"metrics": True}), MetricsEnd(len(data), "x"), piece(0, data)) == []


def test_the_end_of_its_log_wakes_the_study_which_reads_what_is_left(trial, take):
    trial.end(1)
    run = Run.objects.get()
    size = run.log_stored + len(PRINTED)
    Run.objects.update(log_complete_at=None, metrics_read=run.log_stored, log_size=size)
    whole = {"size": size, "final": True, "digest": None}
    assert take(Fact(CLOSED | {"log": whole}), frame(run.log_stored, PRINTED)) == [trial.row.pk]
    assert Trial.objects.get().state == TrialState.ACTIVE
    advance.advance([trial.row.pk], Clock())
    ended = Trial.objects.get()
    assert (ended.state, ended.final["metrics"]) == (TrialState.SUCCEEDED, {"loss": 0.5})
