"""A study goes on as soon as the last value of a trial is here: nobody waits until it is looked at again."""

from __future__ import annotations

import pytest
from django.utils import timezone

from agents.infra.clock import Clock
from agents.links.control_plane import Arrival, Fact, MetricsEnd
from jobs.host_sync import intake
from jobs.host_sync.apply_reports import UnreadableFrames
from jobs.lifecycle.advance import advance_quietly
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
    take(Fact(CLOSED | {"metrics": True}), piece(0, data))
    Run.objects.update(metrics_read=None)
    assert take(MetricsEnd(len(data), journal.chained("", [data]))) == [trial.row.pk]
    assert take(MetricsEnd(len(data), journal.chained("", [data]))) == []


def test_a_trial_whose_last_reports_come_with_its_end_wakes_the_study_once(trial, take):
    """When they come, nothing is decided yet: the study would find a trial that runs."""
    data = line(1, 0.5)
    Run.objects.update(metrics_read=None)
    last = MetricsEnd(len(data), journal.chained("", [data]))
    closed = Fact(CLOSED | {"metrics": True})
    assert take(closed, piece(0, data), last) == []
    told = decided(trial)
    assert told == [trial.row.pk]
    assert Trial.objects.get().job.state == "SUCCEEDED"


def test_reports_that_come_with_a_fact_after_its_end_wake_the_study(trial, take):
    data = line(1, 0.5)
    Run.objects.update(metrics_read=None)
    assert take(Fact(CLOSED | {"metrics": True})) == []
    assert decided(trial) == []
    last = MetricsEnd(len(data), journal.chained("", [data]))
    whole = {"size": 0, "final": True, "digest": None}
    assert take(Fact(CLOSED | {"metrics": True, "log": whole}), piece(0, data), last) == [trial.row.pk]


def decided(trial):
    """The tuning jobs that are looked at because of what is decided about the job."""
    told = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(hints, "tuning", told.extend)
        advance_quietly([trial.trials()[0].job_id], Clock())
    return told


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


@pytest.fixture
def woken(study, monkeypatch):
    """The jobs about which decisions tell their studies."""
    found = []
    monkeypatch.setattr(hints, "trials", found.extend)
    return found


def test_the_first_start_of_a_study_wakes_it_and_later_ones_wait_for_the_sweep(study, woken):
    study.submit().run()
    first, second = (trial.job_id for trial in study.trials())
    assert first in woken and second not in woken
    assert {trial.job.state for trial in study.trials()} == {"RUNNING"}
    advance.advance(advance.due(timezone.now()), Clock())
    assert {trial.job_state for trial in study.trials()} == {"RUNNING"}


@pytest.mark.parametrize(
    ("of_run", "wakes"),
    [
        ({"metrics_proof": "whole"}, True),
        ({"metrics_proof": "none", "metrics_read": None, "log_complete_at": None}, True),
        ({"metrics_proof": "none", "metrics_read": 0, "log_complete_at": None}, False),
        ({"metrics_proof": ""}, False),
        ({"metrics_proof": "", "forgotten_at": "now"}, True),
        ({"metrics_proof": "", "declared_lost_at": "now"}, True),
        ({"metrics_proof": "", "declared_lost_at": "now", "proved_at": "now"}, False),
    ],
)
def test_the_end_of_a_trial_wakes_its_study_unless_the_rest_of_its_reports_will(study, woken, of_run, wakes):
    study.submit(asked(parallelTrialCount=1)).run()
    [trial] = study.trials()
    now = timezone.now()
    columns = {name: now if value == "now" else value for name, value in of_run.items()}
    Run.objects.update(**{"phase": "closed", "exit_code": 0, "log_complete_at": now} | columns)
    woken.clear()
    advance_quietly([trial.job_id], Clock())
    trial.job.refresh_from_db()
    assert trial.job.state == "SUCCEEDED"
    assert woken == [trial.job_id] * wakes
    # Whatever was not told is found.
    assert study.row.pk in advance.due(now)
