"""What a process keeps of a study between two views of its page: what never changes, and no more."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.utils import timezone

from console.presenters.studies import plots, read_trials, study_cost, study_page, study_parts
from jobs.models import Job, Run, Trial, TuningJob
from tests.unit.console.views.example_rows import a_host, one_line
from tests.unit.console.views.test_studies import a_trial, address, holding, rows_of, study, text_of

__all__ = ["study"]

pytestmark = pytest.mark.django_db


@pytest.fixture
def judged(study):
    """The same study, with the verdicts on all its trials that are over."""
    study.trials.exclude(ended_at=None).update(shadow={"convex_automated_stopping_spec": 30.0})
    return study


def read_of(study):
    return {each.number: each for each in read_trials.read_trials(study)}


def test_trials_that_are_over_and_judged_are_read_once(judged):
    Trial.objects.filter(number=3).update(shadow=None)
    first, second = read_of(judged), read_of(judged)
    assert [number for number in first if first[number] is second[number]] == [1, 2]
    Trial.objects.filter(number=3).update(shadow={})
    third = read_of(judged)
    assert third[3].verdicts == {} and third[3] is read_of(judged)[3]


def test_of_a_great_study_only_so_many_trials_are_remembered(judged, monkeypatch):
    monkeypatch.setattr(read_trials, "TRIALS", 1)
    first, second = read_of(judged), read_of(judged)
    assert list(second) == [1, 2, 3, 4, 5] and sum(first[number] is second[number] for number in first) == 1


def test_a_page_shows_what_has_changed_since_the_last_one(browser, judged):
    vera = browser("vera")
    assert "loss: 2 results, from 0.25 to 0.5; the best is 0.25 of trial 2." in text_of(
        vera.get(address(judged))
    )
    now = timezone.now()
    final = {"step": 1, "elapsed": 1.0, "metrics": {"loss": 0.125}}
    Trial.objects.filter(number=4).update(state="SUCCEEDED", final=final, ended_at=now)
    Trial.objects.filter(number=5).update(
        state="ACTIVE", parameters={"lr": 0.9, "kind": "adam"}, started_at=now
    )
    text = text_of(vera.get(address(judged)))
    assert "loss: 3 results, from 0.125 to 0.5; the best is 0.125 of trial 4." in text
    assert 'data-label="lr">0.9<' in text and 'data-trial="4"' in text and "asked about 3 trials" in text
    Trial.objects.filter(number=4).update(shadow={"median_automated_stopping_spec": 10.0})
    text = text_of(vera.get(address(judged)))
    assert (
        "asked about 4 trials" in text and "median: after 10 s" in text and "median would have saved" in text
    )


def test_a_job_that_is_deleted_is_linked_nowhere_any_more(browser, judged):
    judged.study = {
        **judged.study,
        "metrics": [*judged.study["metrics"], {"metricId": "size", "goal": "MAXIMIZE"}],
    }
    judged.save()
    for number, size in ((1, 1.0), (2, 2.0)):
        trial = judged.trials.get(number=number)
        trial.final["metrics"]["size"] = size
        trial.save()
    vera, trial = browser("vera"), judged.trials.get(number=2)
    link = f'href="/jobs/{trial.job_id}/"'
    assert text_of(vera.get(address(judged))).count(link) == 3  # best, front, table
    Job.objects.filter(pk=trial.job_id).update(deleted_at=timezone.now())
    assert link not in text_of(vera.get(address(judged)))


def test_each_language_and_each_range_has_its_own_plots(browser, judged):
    vera = browser("vera")
    english = text_of(vera.get(address(judged)))
    japanese = text_of(vera.get(address(judged), headers={"accept-language": "ja"}))
    assert "the best is 0.25 of trial 2" in english and "the best is 0.25 of trial 2" not in japanese
    assert "would have saved" in english and "would have saved" not in japanese
    ranged = text_of(vera.get(f"{address(judged)}?from.p.lr=0.02"))
    assert "1 trial is inside of all ranges." in ranged and rows_of(ranged) == [2, 3, 4]
    assert text_of(vera.get(address(judged))).count("line out") == 0 and ranged.count("line out") == 1


def test_another_study_has_its_own(browser, judged, cast, project):
    vera = browser("vera")
    first = text_of(vera.get(address(judged)))
    judged.pk = judged.pk + 1
    judged.save(force_insert=True)
    a_trial(judged, 1, 7.5, shadow={})
    a_trial(judged, 2, 8.5, shadow={})
    a_trial(judged, 3, state="INFEASIBLE", shadow={})
    text = text_of(vera.get(address(judged)))
    assert "from 7.5 to 8.5" in text and "from 7.5 to 8.5" not in first
    assert "convex would have stopped no trial" in text and "convex would have saved" in first


def test_a_second_view_draws_nothing_anew(browser, judged, monkeypatch):
    vera = browser("vera")
    first = text_of(vera.get(address(judged)))
    drawn = []
    monkeypatch.setattr(plots, "plots", lambda *given: drawn.append(given))
    monkeypatch.setattr(study_cost, "_saved", lambda *given: drawn.append(given))
    second = text_of(vera.get(address(judged)))
    assert not drawn and second.count("data-trial=") == first.count("data-trial=") == 2


@pytest.fixture
def bodies(monkeypatch):
    """The queries of the bodies that are made, in their order."""
    made, there = [], study_page.body

    def body(row, trials, query):
        made.append(query)
        return there(row, trials, query)

    monkeypatch.setattr(study_page, "body", body)
    return made


def test_a_body_in_which_nothing_runs_is_made_once(browser, judged, bodies):
    Trial.objects.filter(number=4).update(started_at=None)
    first = text_of(browser("vera").get(address(judged)))
    assert rows_of(text_of(browser("bob").get(address(judged)))) == rows_of(first) == [1, 2, 3, 4, 5]
    browser("vera").get(f"{address(judged)}?from-elsewhere=1")
    assert bodies == [{}]
    browser("vera").get(f"{address(judged)}?sort=-m.loss")
    browser("vera").get(f"{address(judged)}?sort=-m.loss", headers={"hx-request": "true"})
    assert bodies == [{}, {"sort": "-m.loss"}]
    assert one_line(study_parts.body_live(judged.owner, judged.pk, {})) in first and len(bodies) == 2


def test_how_long_a_trial_has_been_running_is_never_older_than_the_view(browser, judged, bodies):
    vera = browser("vera")
    for view in (1, 2, 3):
        assert text_of(vera.get(address(judged))).count("data-since=") == 2 and len(bodies) == view


def test_what_a_trial_still_holds_is_never_older_than_the_view(browser, judged, bodies):
    """It is over, and its host is silent: its GPUs count on."""
    Trial.objects.filter(number=4).update(started_at=None)
    run = holding(judged.trials.get(number=1).job, a_host(gpus=2), 2, timezone.now() - timedelta(hours=1))
    vera = browser("vera")
    for hours in ("2.0", "4.0"):
        assert f'data-label="GPU-hours">{hours}<' in text_of(vera.get(address(judged)))
        Run.objects.filter(pk=run.pk).update(created_at=timezone.now() - timedelta(hours=2))
    Run.objects.filter(pk=run.pk).update(released_at=timezone.now())
    assert 'data-label="GPU-hours"' not in text_of(vera.get(address(judged)))


CHANGES = {
    "drawn": (5, {"parameters": {"lr": 0.875, "kind": "adam"}}, 'data-label="lr">0.875<'),
    "begun": (5, {"started_at": timezone.now()}, 'data-label="Ran for"><span data-since='),
    "stopping": (4, {"state": "STOPPING"}, 'data-state="STOPPING"'),
    "stopped early": (4, {"stopped_early": "By median."}, '<div class="why">By median.</div>'),
    "failed": (
        4,
        {"state": "INFEASIBLE", "infeasible_reason": "It fell."},
        '<div class="why">It fell.</div>',
    ),
    "ended": (4, {"ended_at": timezone.now()}, ""),
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_becomes_of_a_trial_is_there_at_the_next_view(browser, judged, bodies, change):
    number, columns, shown = CHANGES[change]
    Trial.objects.filter(number=4).update(started_at=None)
    vera = browser("vera")
    before = text_of(vera.get(address(judged)))
    Trial.objects.filter(number=number).update(**columns)
    after = text_of(vera.get(address(judged)))
    assert after.count(shown) > before.count(shown) or not shown
    assert len(bodies) == 2


def test_a_study_that_ends_without_a_result_says_so_at_the_next_view(browser, judged):
    judged.trials.filter(number__lt=3).delete()
    vera = browser("vera")
    assert "No trial has a result yet." in text_of(vera.get(address(judged)))
    TuningJob.objects.update(state="FAILED")
    assert "No trial has a result." in text_of(vera.get(address(judged)))


def test_words_of_a_trial_are_escaped_in_its_row(browser, judged):
    Trial.objects.filter(number=3).update(
        infeasible_reason="<b>x</b>", why={"value": 0.5, "low": 0.4, "high": 0.6, "chance": 0.2}
    )
    text = text_of(browser("vera").get(address(judged)))
    assert '<div class="why">&lt;b&gt;x&lt;/b&gt;</div>' in text and "<b>x</b>" not in text
    assert rows_of(text) == [1, 2, 3, 4, 5] and text.count('data-label="Expected before"') == 5
    assert text.count('<span class="chip">best</span>') == text.count('class="best">') == 1


@pytest.mark.parametrize("rest", ["parameters", "scatter"])
def test_the_plots_of_other_tabs_are_those_of_the_trials(browser, study, rest):
    """They are drawn once for all who look, and again when a result comes."""
    page = address(study, rest)

    def drawn():
        return re.findall(r' d="([^"]*)"', text_of(browser("vera").get(page)))

    before = drawn()
    study.trials.filter(number=3).update(
        state="SUCCEEDED", final={"step": 1, "elapsed": 1.0, "metrics": {"loss": 0.3}}
    )
    assert drawn() != before
