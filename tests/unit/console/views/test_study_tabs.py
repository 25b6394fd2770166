"""The tabs Scatter and Timeline of a study."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.utils import timezone

from console.parts.studies import STUDY_SCATTER, STUDY_TIMELINE
from console.presenters.studies import study_parts
from console.presenters.studies.scatter_matrix import rank_correlation
from jobs.models import Trial
from tests.unit.console.views.test_studies import a_trial, address, many, study, text_of

__all__ = ["study"]
pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("ys", "expected"),
    [
        ([1, 2, 3, 4, 5], 1.0),
        ([9, 8, 7, 3, 1], -1.0),
        ([1, 1, 1, 1, 1], None),
        ([1, None, 3, 4, 5], None),
        # Ranks of equal values are shared: 0.5, 0.5, 2, 3.5, 3.5 beside 0 to 4.
        ([1, 1, 2, 3, 3], 9 / (10 * 9) ** 0.5),
    ],
)
def test_ranks_are_correlated(ys, expected):
    assert rank_correlation([1, 2, 3, 4, 5], ys) == (expected and pytest.approx(expected))


def test_parameters_and_metrics_are_drawn_against_each_other(browser, study):
    for number in range(6, 30):
        a_trial(study, number, loss=number / 10)
    study.trials.filter(number__in=(1, 2)).delete()
    vera, page = browser("vera"), address(study, "scatter")
    text = text_of(vera.get(page))
    # lr, kind and loss: three cells.
    assert text.count('class="dots good"') == 3 and "loss over lr; rank correlation +1.00." in text
    table = text[text.index("As a table") :]
    assert re.findall(r'<td class="number">([^<]+)<', table) == ["+0.07", "+1.00", "+0.07"]
    text = text_of(vera.get(f"{page}?from.p.lr=0.1&hide.p.kind=1"))
    assert "20 of 29 trials" not in text and text.count('class="dots good"') == 1
    dots = re.search(r'class="dots good" d="([^"]*)"', text)[1].count("M")
    assert dots == 4 and "20 of 27 trials are inside of all ranges." in text
    assert "This needs two trials" in text_of(vera.get(f"{page}?hide.p.kind=1&hide.p.lr=1"))


def moment(minutes):
    return timezone.now() - timedelta(hours=2) + timedelta(minutes=minutes)


def test_the_timeline_shows_what_ran_at_once_and_what_was_stopped(browser, study):
    """Two lanes: trial 2 begins beside trial 1, trial 3 when that has ended, and trial 4 runs."""
    for number, start, end in ((1, 0, 10), (2, 5, 20), (3, 10, 15)):
        study.trials.filter(number=number).update(started_at=moment(start), ended_at=moment(end))
    study.trials.filter(number=2).update(stopped_early="Stopped early by the median rule.")
    study.trials.filter(number=4).update(started_at=moment(60))
    text = text_of(browser("vera").get(address(study, "timeline")))
    assert (
        "4 trials in 2 h" in text
        and "at most 2 at once. 1 stopped early, 1 without a result, 1 running" in text
    )
    ys = {kind: re.findall(r"M\d+ ([\d.]+)H", path) for kind, path in bars(text).items()}
    assert ys == {"rest": ["22.5"], "stopped": ["67.5"], "failed": ["22.5"], "running": ["22.5"]}
    rows = re.findall(r'<th scope="row"> <a href="/jobs/\d+/">(\d+)</a>', text)
    assert rows == ["2", "4", "3", "1"] and "Stopped early by the median rule." in text
    Trial.objects.update(started_at=None)
    assert "No trial has started yet." in text_of(browser("vera").get(address(study, "timeline")))


def bars(text):
    return dict(re.findall(r'class="bar (\w+)" d="([^"]*)"', text))


def test_of_a_thousand_trials_the_plots_are_bounded(browser, study, django_assert_max_num_queries):
    many(study, 1000)
    for rest in ("scatter", "timeline"):
        text = text_of(browser("vera").get(address(study, rest)))
        drawn = sum(len(each) for each in re.findall(r"<svg.*?</svg>", text))
        assert 5_000 < drawn < 120_000, rest


def test_the_new_tabs_are_live(study, cast):
    assert [each.name for each in (STUDY_SCATTER, STUDY_TIMELINE)] == ["study-scatter", "study-timeline"]
    assert 'id="study-scatter"' in study_parts.scatter_live(cast.bob, study.pk, {})
    assert 'id="study-timeline"' in study_parts.timeline_live(cast.bob, study.pk, {})
    assert study_parts.scatter_live(cast.charlie, study.pk, {}) == ""
