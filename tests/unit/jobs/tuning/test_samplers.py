"""Studies that ask for a sampler of Optuna, and trials that report no metric of their study."""

from __future__ import annotations

from datetime import timedelta

import pytest
from cryptography.fernet import Fernet
from django.utils import timezone

from agents.infra.clock import Clock
from agents.infra.refusals import Refused
from jobs.models import Job, Trial, TuningJob
from jobs.tuning import advance, sampler_memory, silent_trials, snapshot, tuning_jobs
from tests.unit.jobs.tuning.conftest import asked
from tests.unit.jobs.tuning.test_tuning_jobs import states

pytestmark = pytest.mark.django_db


def named(name, **changes):
    spec = {**asked()["studySpec"], "trainyard": {"algorithm": name}}
    spec.pop("algorithm")
    return asked(studySpec=spec, parallelTrialCount=1, **changes)


@pytest.mark.parametrize("name", ["TPE", "NSGA_II", "CMA_ES"])
def test_a_study_with_a_sampler_runs_to_its_end(study, name):
    study.submit(named(name)).run()
    for number in range(1, 5):
        study.end(number, loss=1.0 / number)
        study.run()
    assert (study.row.state, states(study)) == ("SUCCEEDED", ["SUCCEEDED"] * 4)
    assert len({str(each.parameters) for each in study.trials()}) == 4


def test_what_cma_es_remembers_is_stored_sealed_with_its_trial(study):
    study.submit(named("CMA_ES", maxTrialCount=9)).run()
    for number in (1, 2, 3):
        study.end(number, loss=1.0 / number)
        study.run()
    last = study.trials()[-1]
    assert sampler_memory.read(last)["cma:generation"] == 0 and b"cma" not in bytes(last.sampler_sealed)
    rows = snapshot.study_rows(study.trials())
    assert rows.running[0].memory == sampler_memory.read(last)
    # A pickle that somebody else wrote into the database is not read.
    Trial.objects.filter(pk=last.pk).update(sampler_sealed=b"nobody")
    assert snapshot.study_rows(study.trials()).running[0].memory is None


@pytest.mark.parametrize("name", ["NSGA_II", "CMA_ES"])
def test_a_study_goes_on_when_no_key_reads_what_its_sampler_remembers(study, settings, name):
    study.submit(named(name, maxTrialCount=6)).run()
    for number in range(1, 7):
        study.end(number, loss=1.0 / number)
        if number == 3:
            assert any(each.sampler_sealed for each in study.trials())
            settings.FIELD_KEYS = [Fernet.generate_key().decode()]
        study.run()
    assert study.row.state == "SUCCEEDED" and len(study.trials()) == 6


@pytest.mark.parametrize(("absent", "name"), [("optuna", "TPE"), ("cmaes", "CMA_ES")])
def test_a_sampler_that_is_not_installed_is_refused_with_the_cure(study, monkeypatch, absent, name):
    there = tuning_jobs.find_spec
    monkeypatch.setattr(tuning_jobs, "find_spec", lambda each: None if each == absent else there(each))
    with pytest.raises(Refused, match=r"pip install 'trainyard\[optuna\]'") as refused:
        study.submit(named(name))
    assert refused.value.field == "study_spec.trainyard.algorithm" and absent in refused.value.message
    assert not TuningJob.every.exists()
    study.submit()


def test_a_trial_that_reports_another_metric_says_so_after_ten_minutes(study):
    study.submit(asked(parallelTrialCount=2)).run()
    study.report(1, acc=0.5, epoch_loss=0.1)
    study.report(2, loss=0.5)

    def later(minutes):
        advance.advance([study.row.pk], Clock(timezone.now() + timedelta(minutes=minutes)))
        study.row.refresh_from_db()
        return study.row.reason

    assert later(9) == ""
    assert later(11) == (
        "Trial 1 has run for 10 minutes: no loss yet; seen: acc, epoch_loss. Its program reports it with, for "
        'example: print(json.dumps({"loss": value, "step": step}), flush=True)'
    )
    study.report(1, loss=0.5)
    assert later(11) == ""


def test_a_trial_that_reports_its_metric_among_many_is_not_named(study, monkeypatch):
    monkeypatch.setattr(silent_trials, "MOST_READ", 1)
    study.submit(asked(parallelTrialCount=2)).run()
    study.report(1, acc=0.5, epoch_loss=0.1, loss=0.2)
    study.report(2, acc=0.5, epoch_loss=0.1, loss=0.2)
    advance.advance([study.row.pk], Clock(timezone.now() + timedelta(minutes=11)))
    study.row.refresh_from_db()
    assert study.row.reason == ""


def test_a_trial_with_many_names_leaves_the_others_theirs(study, monkeypatch):
    """Of each trial some names are read, however many another one reports."""
    monkeypatch.setattr(silent_trials, "MOST_READ", 4)
    monkeypatch.setattr(silent_trials, "MOST_NAMES", 3)
    study.submit(asked(parallelTrialCount=2)).run()
    study.report(1, **{f"a{number}": 0.5 for number in range(9)})
    study.report(2, zeta=0.5)
    numbers = {each.job_id: each.number for each in study.trials()}
    told = silent_trials.of_jobs(snapshot.study_of(study.row), numbers)
    first, second = (told[job] for job in numbers)
    assert "seen: a0, a1, a2 and 1 more." in first
    assert "seen: zeta." in second


def test_trials_that_report_nothing_say_so(study):
    study.submit(asked(parallelTrialCount=2)).run()
    advance.advance([study.row.pk], Clock(timezone.now() + timedelta(minutes=11)))
    study.row.refresh_from_db()
    assert study.row.reason.startswith(
        "Trials 1, 2 have run for 10 minutes: no loss yet, and nothing else seen."
    )
    assert Job.objects.filter(state="RUNNING").count() == 2
