"""What a study's page says of its price, and of rules that stop trials early."""

from __future__ import annotations

import pytest

from console.parts.studies import STUDY_COST
from console.presenters.studies import study_parts
from jobs.models import Trial, TuningJob
from tests.unit.console.views.test_extend_study import over
from tests.unit.console.views.test_studies import text_of

__all__ = ["over"]

pytestmark = pytest.mark.django_db


def test_the_page_says_what_rules_would_have_saved(over, browser):
    page = browser("vera").get(f"/studies/{over.pk}/")
    assert "would have" not in text_of(page)
    Trial.objects.filter(number=1).update(shadow={"convex_automated_stopping_spec": 30.0})
    Trial.objects.filter(number=2).update(shadow={})
    text = text_of(browser("vera").get(f"/studies/{over.pk}/"))
    assert "convex would have saved 38 % of the time and kept the best trial" in text
    assert "median would have stopped no trial" in text and "asked about 2 trials" in text
    assert "convex: after 30 s" in text


def test_the_page_says_what_more_trials_would_bring(over, browser):
    TuningJob.objects.update(outlook=[{"trials": 5, "now": 0.25, "value": 0.2, "low": 0.1, "high": 0.25}])
    text = text_of(browser("vera").get(f"/studies/{over.pk}/"))
    assert "The model expects 5 more trials to bring loss from 0.25 to about 0.2, mostly 0.1 to 0.25." in text
    assert "Still to come" not in text


def test_a_study_that_is_not_over_says_what_its_trials_will_cost(over, browser):
    TuningJob.objects.update(state="RUNNING", max_trials=4)
    assert "2 trials without GPUs cost no GPU-hours." in text_of(browser("vera").get(f"/studies/{over.pk}/"))


def test_the_part_changes_when_a_verdict_is_noted(over, browser):

    before = study_parts.cost_stamp(over.pk)
    Trial.objects.filter(number=1).update(shadow={})
    assert study_parts.cost_stamp(over.pk) != before and STUDY_COST.name == "study-cost"
