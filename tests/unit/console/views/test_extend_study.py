"""The form on a study's page that gives it more trials."""

from __future__ import annotations

import json

import pytest
from django.utils import timezone

from console.forms.sample_study import SAMPLE_STUDY
from jobs.models import AuditEntry, TuningJob
from tests.unit.console.views.example_rows import a_host, a_job, a_tuning_job
from tests.unit.console.views.test_studies import TWO, a_trial, text_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def over(cast, project):
    """A study of two trials that succeeded."""
    first = a_job(project, cast.bob, state="SUCCEEDED", name="trial-1")
    now = timezone.now()
    made = a_tuning_job(
        first, study=TWO, max_trials=2, state="SUCCEEDED", outcome="SUCCEEDED", started_at=now, ended_at=now
    )
    made.trials.all().delete()
    a_trial(made, 1, 0.5, job=first)
    a_trial(made, 2, 0.25)
    return made


def test_more_trials_open_a_study_again(over, browser):
    bob = browser("bob")
    page = text_of(bob.get(f"/studies/{over.pk}/"))
    assert 'name="max_trials" value="2"' in page and "Extend the study" in page
    sent = {"max_trials": "5", "parallel_trials": "3", "max_failed": "0"}
    answer = bob.post(f"/studies/{over.pk}/extend", sent, follow=True)
    assert "goes on" in text_of(answer)
    row = TuningJob.objects.get()
    assert (row.state, row.max_trials, row.parallel_trials, row.ended_at) == ("RUNNING", 5, 3, None)
    entry = AuditEntry.objects.get(what="study.extend")
    assert (entry.actor, entry.before["trials"], entry.after["trials"]) == ("bob", 2, 5)


def test_what_is_refused_stands_at_its_field_and_what_was_typed_stays(over, browser):
    bob = browser("bob")
    page = text_of(bob.post(f"/studies/{over.pk}/extend", {"max_trials": "1"}))
    assert 'name="max_trials" value="1"' in page and "Trials in all must not be below 2" in page
    assert "Enter a whole number" in text_of(bob.post(f"/studies/{over.pk}/extend", {"max_trials": "x"}))
    assert TuningJob.objects.get().state == "SUCCEEDED"


def test_a_viewer_sees_no_form(over, browser):
    assert "Extend the study" not in text_of(browser("vera").get(f"/studies/{over.pk}/"))


def test_a_study_is_continued_as_a_new_one_that_learns_from_it(over, browser):
    a_host()
    bob = browser("bob")
    page = text_of(bob.get(f"/studies/{over.pk}/"))
    assert f'href="/studies/new?continue={over.pk}"' in page
    form = text_of(bob.get(f"/studies/new?continue={over.pk}"))
    assert f'name="prior" value="{over.pk}"' in form
    typed = {
        "mode": "form",
        "project": "default",
        "location": "default",
        "display_name": "next",
        "metric": "loss",
        "goal": "MINIMIZE",
        "max_trials": "4",
        "parallel_trials": "1",
        "prior": f" {over.pk} ,",
        "trial_job": json.dumps(SAMPLE_STUDY["trialJobSpec"]),
        "parameters-name": ["lr", "kind"],
        "parameters-kind": ["DOUBLE", "CATEGORICAL"],
        "parameters-low": ["0.001", ""],
        "parameters-high": ["1", ""],
        "parameters-values": ["", "adam, -sgd"],
        "parameters-scale": ["UNIT_LOG_SCALE", "UNIT_LINEAR_SCALE"],
    }
    wrong = text_of(bob.post("/studies/new", {**typed, "prior": "7"}))
    assert "Earlier studies is no study of project default: 7." in wrong
    made = bob.post("/studies/new", typed)["Location"]
    row = TuningJob.objects.get(display_name="next")
    assert made == f"/studies/{row.pk}/" and row.study["transferLearningConfig"] == {
        "priorStudyNames": [str(over.pk)]
    }
    spec = text_of(bob.get(f"{made}spec"))
    assert f"{over.display_name} ({over.pk}): 2 trials" in spec
    again = text_of(bob.get(f"/studies/new?continue={row.pk}"))
    assert f'name="prior" value="{row.pk}, {over.pk}"' in again
