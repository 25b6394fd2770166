"""What rules that stop trials would have done, and what more trials may bring, noted by the sweep."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from console.presenters.studies import read_trials, study_cost
from jobs.models import Trial, TuningJob, Usage
from jobs.rules.tuning.stopping import shadow
from jobs.tuning import outlooks, price, shadows
from tests.unit.jobs.tuning.conftest import asked

pytestmark = pytest.mark.django_db
MEDIAN = "median_automated_stopping_spec"


def curve(tuning_job, number, values, minute):
    """A trial that is over, with a value each second."""
    kept = [
        {"step": step, "elapsed": float(step), "metrics": {"loss": value}}
        for step, value in enumerate(values, start=1)
    ]
    began = timezone.now() - timedelta(hours=2) + timedelta(minutes=minute)
    Trial.objects.filter(tuning_job=tuning_job, number=number).update(
        measurements=kept,
        final=kept[-1],
        started_at=began,
        ended_at=began + timedelta(seconds=len(values)),
        shadow=None,
    )


@pytest.fixture
def searched(study):
    """Eight trials, one after the other; the last is poor."""
    study.submit(asked(maxTrialCount=8, parallelTrialCount=1)).run()
    for number in range(1, 9):
        study.end(number, loss=float(number))
        study.run()
        values = [50.0] * 10 if number == 8 else [1.0 + number / 10 - step / 100 for step in range(10)]
        curve(study.row, number, values, minute=number)
    return study


def test_verdicts_on_trials_that_are_over_are_noted_once(searched):
    assert shadows.note(timezone.now()) == 8
    by_number = dict(Trial.objects.values_list("number", "shadow"))
    assert by_number[1] == {} and MEDIAN in by_number[8]
    assert 5 <= by_number[8][MEDIAN] < 10
    assert shadows.note(timezone.now()) == 0


def test_trials_that_run_or_measured_nothing_have_no_verdict(study):
    study.submit().run()
    study.end(1)
    study.run()
    shadows.note(timezone.now())
    assert list(Trial.objects.order_by("number").values_list("shadow", flat=True)) == [{}, {}]
    study.submit().run()
    assert shadows.note(timezone.now()) == 0


def test_many_trials_are_compared_with_a_part_of_them(searched, monkeypatch):
    monkeypatch.setattr(shadows, "OTHERS", 6)
    monkeypatch.setattr(shadows, "AT_ONCE", 3)
    assert [shadows.note(timezone.now()) for _ in range(4)] == [3, 3, 2, 0]
    assert MEDIAN in Trial.objects.get(number=8).shadow


def test_the_newest_trials_are_noted_first(searched, monkeypatch):
    monkeypatch.setattr(shadows, "AT_ONCE", 3)
    shadows.note(timezone.now())
    noted = Trial.objects.filter(shadow__isnull=False).order_by("number")
    assert list(noted.values_list("number", flat=True)) == [6, 7, 8]


def test_a_trial_that_cannot_be_judged_holds_up_no_other(searched, monkeypatch):
    there = shadow.verdicts

    def verdicts(study, own, others):
        if own.trial.number == 7:
            raise OverflowError
        return there(study, own, others)

    monkeypatch.setattr(shadow, "verdicts", verdicts)
    assert shadows.note(timezone.now()) == 8
    assert MEDIAN in Trial.objects.get(number=8).shadow
    assert Trial.objects.get(number=7).shadow == Trial.objects.get(number=1).shadow == {}
    Trial.objects.update(shadow=None)
    TuningJob.objects.update(study={"parameters": "nonsense"})
    assert shadows.note(timezone.now()) == 8
    assert shadows.note(timezone.now()) == 0


def test_an_outlook_is_noted_when_the_study_has_changed(searched):
    now = timezone.now()
    assert outlooks.note(now) == 1
    found = outlooks.read(TuningJob.objects.get())
    assert [each.trials for each in found] == list(outlooks.COUNTS)
    assert outlooks.note(now + timedelta(hours=1)) == 0
    TuningJob.objects.update(updated_at=now + timedelta(minutes=1))
    assert outlooks.note(now + timedelta(seconds=30)) == 0
    assert outlooks.note(now + timedelta(minutes=2)) == 1


def test_a_study_that_cannot_be_looked_at_is_not_tried_for_ever(searched):
    TuningJob.objects.update(study={"parameters": "nonsense"})
    with pytest.raises(Exception, match="metrics"):
        outlooks.note(timezone.now())
    assert outlooks.note(timezone.now()) == 0


def test_the_usual_time_of_a_trial_is_that_of_the_study(searched):
    row = TuningJob.objects.get()
    [found] = price.price_of_more(row, [4], study_cost.seconds_of(read_trials.read_trials(row)))
    assert (found.trials, found.gpus, found.usual_s) == (4, 0, 10.0)


def test_what_trials_have_used_and_use_now(study):
    study.submit(asked(maxTrialCount=2)).run()
    assert price.used_hours(study.row, timezone.now() + timedelta(hours=1)) == {}
    study.trials()[0].job.runs.update(gpu_uuids=["a", "b"])
    used = price.used_hours(study.row, timezone.now() + timedelta(hours=1))
    assert used == {1: pytest.approx(2.0, abs=0.1)}
    assert price.hours_in_all(study.row, timezone.now() + timedelta(hours=1)) == pytest.approx(2.0, abs=0.1)
    study.end(1, loss=0.5)
    study.run()
    assert price.used_hours(study.row, timezone.now() + timedelta(hours=9))[1] < 0.1
    assert price.hours_in_all(study.row, timezone.now() + timedelta(hours=9)) < 0.1


def test_the_use_of_all_trials_is_the_sum_of_what_each_has_used(study):
    """Also of a run that ends while it is read: its row and what it still seems to hold are one use."""
    study.submit(asked(maxTrialCount=3, parallelTrialCount=3)).run()
    jobs = [trial.job for trial in study.trials()]
    for gpus, job in enumerate(jobs, 1):
        job.runs.update(gpu_uuids=[f"{job.pk}-{each}" for each in range(gpus)])
    study.end(1, loss=0.5)
    study.run()
    began = timezone.now() - timedelta(hours=5)
    Usage.objects.all().update(began_at=began, ended_at=began + timedelta(hours=2), gpus=4)
    for job in jobs[1:]:
        job.runs.update(created_at=began)
    while_read = {"gpus": 2, "cpus": 0, "began_at": began, "ended_at": began + timedelta(hours=1)}
    Usage.objects.create(run=jobs[1].runs.get(), job=jobs[1], project=jobs[1].project, **while_read)
    at = began + timedelta(hours=10)
    each = {1: pytest.approx(8.0), 2: pytest.approx(2.0), 3: pytest.approx(30.0)}
    assert price.used_hours(study.row, at) == each
    assert price.hours_in_all(study.row, at) == pytest.approx(40.0)
    for settled, others in ((0, [1, 2, 3]), (1, [2, 3]), (2, [3]), (3, [])):
        assert price.hours_in_all(study.row, at, settled, others) == pytest.approx(40.0), others


def test_what_trials_have_used_is_remembered_when_they_hold_nothing_any_more(
    study, django_assert_num_queries
):
    study.submit(asked(maxTrialCount=2, parallelTrialCount=2)).run()
    for trial in study.trials():
        trial.job.runs.update(gpu_uuids=[f"{trial.number}"])
    study.end(1, loss=0.5)
    study.run()
    began = timezone.now() - timedelta(hours=5)
    Usage.objects.all().update(began_at=began, ended_at=began + timedelta(hours=2), gpus=1)
    study.trials()[1].job.runs.update(created_at=began)

    def hours(after, settled, others):
        return round(price.hours_in_all(study.row, began + timedelta(hours=after), settled, others), 3)

    # As if the second were over, and its host had not said yet that nothing runs there any more.
    assert [hours(after, 2, []) for after in (3, 4, 5)] == [5.0, 6.0, 7.0]
    assert hours(3, 1, [2]) == 5.0
    with django_assert_num_queries(1):
        assert hours(4, 1, [2]) == 6.0
    study.end(2, loss=0.25)
    study.run()
    Usage.objects.filter(job=study.trials()[1].job).update(
        began_at=began, ended_at=began + timedelta(hours=1), gpus=1
    )
    assert hours(5, 2, []) == 3.0
    with django_assert_num_queries(0):
        assert hours(6, 2, []) == 3.0
