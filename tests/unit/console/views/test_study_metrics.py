"""The pages of a study with several metrics: each plot is of the metric that the address asks for; and what is absent
has a sentence that says why."""

from __future__ import annotations

import html
import re

import pytest
from django.utils import timezone

from jobs.models import TuningJob
from tests.unit.console.views.example_rows import a_host, a_job
from tests.unit.console.views.test_studies import TWO, a_trial, address, links_of, report, study, text_of

__all__ = ["study"]
pytestmark = pytest.mark.django_db

HTMX = {"HX-Request": "true"}
METRICS = [
    {"metricId": "loss", "goal": "MINIMIZE"},
    {"metricId": "speed", "goal": "MAXIMIZE"},
    {"metricId": "size&cost", "goal": "MINIMIZE"},
]


def measured(loss, speed, size):
    metrics = {"loss": loss, "speed": speed, "size&cost": size}
    return {"step": 1, "elapsed": 1.0, "metrics": metrics}


@pytest.fixture
def several(study):
    """Loss is best at the lowest lr, speed at the highest, size is the same for all but one."""
    study.study = {**TWO, "metrics": METRICS}
    study.save()
    study.trials.all().delete()
    for number in range(1, 31):
        a_trial(study, number, final=measured(number / 10, number, 5.0 if number == 7 else 9.0))
    return study


def changed(study, document):
    study.study, study.updated_at = document, timezone.now()
    study.save()


def ranked(text):
    """The trial with the thickest line, and those with thick ones."""
    return [
        [int(found) for found in re.findall(rf'class="line {kind}" data-trial="(\d+)"', text)]
        for kind in ("best", "good")
    ]


def test_the_lines_of_the_trials_are_ranked_by_the_chosen_metric(browser, several):
    vera, page = browser("vera"), address(several)
    assert ranked(text_of(vera.get(page))) == [[1], [2, 3, 4, 5, 6]]
    text = text_of(vera.get(f"{page}?metric=speed&from.p.lr=0.05&sort=-m.loss"))
    assert ranked(text)[0] == [30] and "the best one by speed" in text
    # Every link that leads on keeps the metric, the links that choose another one keep the rest.
    lead_on = [each for each in links_of(text) if each.startswith(page) and "?" in each]
    assert lead_on and all("metric=" in each for each in lead_on)
    [to_size] = {each for each in lead_on if "metric=size" in each and "#parallel" in each}
    assert to_size == f"{page}?from.p.lr=0.05&sort=-m.loss&metric=size%26cost#parallel"
    assert ranked(text_of(vera.get(to_size)))[0] == [7]
    assert ranked(text_of(vera.get(f"{page}?metric=nothing")))[0] == [1]


def test_importances_slices_and_the_contour_are_of_the_chosen_metric(browser, several):
    vera, page = browser("vera"), address(several, "parameters")
    text = text_of(vera.get(page))
    assert "loss over lr, from 0.001 to 1: the best trial has 0.01." in text
    text = text_of(vera.get(f"{page}?metric=speed"))
    assert "speed over lr, from 0.001 to 1: the best trial has 0.3." in text
    contour = address(several, "contour")
    assert f'hx-get="{contour}?metric=speed"' in text
    text = text_of(vera.get(f"{contour}?metric=speed"))
    assert "The model expects the best speed" in text and "as in trial 30, the best one" in text
    assert '<input type="hidden" name="metric" value="speed">' in text
    # One model is kept for each metric.
    assert "The model expects the best loss" in text_of(vera.get(contour))


def test_the_curves_are_of_the_chosen_metric(browser, cast, project, several):
    host = a_host()
    job = a_job(project, cast.bob, host=host)
    a_trial(several, 31, job=job, state="ACTIVE", ended_at=None)
    report(job, host, 0.8, 0.3)
    report(job, host, 4.0, 7.0, name="speed")
    vera, page = browser("vera"), address(several, "curves")
    assert "0.3 to 0.8" in text_of(vera.get(page)) and "4 to 7" in text_of(vera.get(f"{page}?metric=speed"))


def test_of_three_goals_two_are_chosen_for_the_front(browser, several):
    vera, page = browser("vera"), address(several)
    text = text_of(vera.get(page))
    # In loss and speed no trial beats another one.
    assert "speed over loss of 30 trials. 30 are on the front" in text
    text = text_of(vera.get(f"{page}?front.across=size%26cost&front.up=loss"))
    assert "loss over size&amp;cost of 30 trials. 2 are on the front" in text
    front = text[text.index("The trials of the front") :]
    assert re.findall(r'data-label="loss">([^<]+)<', front[: front.index("</table>")]) == ["0.7", "0.1"]
    assert '<option value="loss" selected>' in text and "front.up=loss" in html.unescape(text)
    # The same one twice: another one is taken for the second.
    assert "speed over loss of 30" in text_of(vera.get(f"{page}?front.across=loss&front.up=loss"))


def test_the_tabs_keep_what_the_address_asks_for(browser, several):
    vera = browser("vera")
    asked = "from.p.lr=0.05&metric=speed&sort=-number&across=kind"
    for rest in ("", "parameters", "curves", "spec"):
        text = text_of(vera.get(f"{address(several, rest)}?{asked}&page=1&odd=1"))
        tabs = links_of(text[text.index('id="study-tabs"') :].partition("</nav>")[0])
        assert len(tabs) >= 4 and all(each.endswith(f"?{asked}") for each in tabs), rest
    # What htmx gets brings the tabs along: they stand outside of what it replaces.
    for rest in ("", "parameters"):
        text = text_of(vera.get(f"{address(several, rest)}?{asked}", headers=HTMX))
        assert 'id="study-tabs"' in text and 'hx-select-oob="#study-tabs"' in text and "<html" not in text


def test_ranges_hold_in_the_other_tabs(browser, cast, project, several):
    vera, host = browser("vera"), a_host()
    for number in (31, 32):
        job = a_job(project, cast.bob, host=host)
        a_trial(several, number, job=job, state="ACTIVE", ended_at=None)
        report(job, host, float(number))
    for rest in ("parameters", "curves"):
        page = address(several, rest)
        text = text_of(vera.get(f"{page}?from.p.lr=0.28&to.p.lr=0.31&metric=speed"))
        assert "4 of 32 trials are inside of all ranges." in text
        assert f'href="{page}?metric=speed"' in text
        assert "are inside of all ranges" not in text_of(vera.get(page))
    text = text_of(vera.get(f"{address(several, 'curves')}?from.p.lr=0.28&to.p.lr=0.31"))
    assert "31 to 31" in text


def test_each_slice_has_its_table(browser, several):
    text = text_of(browser("vera").get(address(several, "parameters")))
    tables = re.findall(r"<summary>As a table<.*?</table>", text)
    rows = [re.findall(r"<t[hd] [^>]*>([^<]+)</t[hd]>", each.partition("<tbody>")[2]) for each in tables]
    # Six trials in each fifth: the median of 0.1 to 0.6 lies between two of them.
    assert rows[0][:5] == ["0.01 to 0.06", "6", "0.35", "0.1", "1"] and len(rows[0]) == 25
    assert rows[1] == ["adam", "15", "1.6", "0.2", "2", "-sgd", "15", "1.5", "0.1", "1"]


def test_the_outlook_is_of_the_chosen_metric_and_number_of_trials(browser, several):
    outlook = [
        {"trials": count, "now": 4.0, "value": value, "low": 1.0, "high": 2.0, "metric": metric}
        for metric, value in (("loss", 3.5), ("speed", 5.5))
        for count in (1, 5, 10, 30)
    ]
    TuningJob.objects.update(outlook=outlook)
    vera, page = browser("vera"), address(several)

    def said(query=""):
        return re.findall(
            r"expects (\d+) more trials? to bring (\w+) from 4", text_of(vera.get(page + query))
        )

    assert said() == [("5", "loss"), ("10", "loss")]
    assert said("?metric=speed&more=30") == [("30", "speed")]
    assert said("?more=7") == said()
    text = text_of(vera.get(f"{page}?metric=speed&more=1"))
    assert "<option selected>1</option>" in text and "that one alone" in text


def test_what_is_absent_is_told_with_the_reason(browser, study, several):
    vera, page = browser("vera"), address(several)
    text = text_of(vera.get(page))
    assert "Rules that stop trials early know one goal." in text and "worked out within a minute" in text
    assert "With several goals each trial is chosen for another mixture of them" in text
    safe = {"metricId": "speed", "goal": "MAXIMIZE", "safetyConfig": {"safetyThreshold": 1.0}}
    changed(several, {**TWO, "metrics": [METRICS[0], safe], "algorithm": "RANDOM_SEARCH"})
    text = text_of(vera.get(page))
    assert "the model of that knows no thresholds" in text and "This search has no model" in text
    assert "What rules that stop trials early would save is worked out" in text
    changed(several, TWO)
    several.trials.filter(number__gt=4).delete()
    text = text_of(vera.get(page))
    assert "is said once 5 trials have a result" in text and "The first 5 trials are drawn at random." in text
    several.trials.update(state="ACTIVE", ended_at=None)
    assert "No trial has ended yet that rules" in text_of(vera.get(page))
