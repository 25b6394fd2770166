"""The page that compares studies: their curves in one plot, its table, and who may see it."""

from __future__ import annotations

import re

import pytest

from jobs.models import TuningJob
from tests.unit.console.views.example_rows import a_job, a_tuning_job
from tests.unit.console.views.test_studies import TWO, a_trial, text_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def pair(cast, project):
    """The first finds 0.4, then 0.1 with its third; the second is still at 0.2 after six."""
    made = []
    for name, losses in (("first", (0.4, 0.5, 0.1)), ("second", (0.3, 0.2, 0.6, 0.7, 0.8, 0.9))):
        study = a_tuning_job(a_job(project, cast.bob, name=name), study=TWO, display_name=name)
        study.trials.all().delete()
        for number, loss in enumerate(losses, 1):
            a_trial(study, number, loss)
        made.append(study)
    return made


def address(studies, rest=""):
    return "/studies/compare?" + "&".join(f"study={each.pk}" for each in studies) + rest


def test_two_studies_are_one_plot_with_a_table(browser, pair):
    text = text_of(browser("vera").get(address(pair)))
    assert "first has found 0.1 in 3 results; second has found 0.2 in 6 results" in text
    paths = dict(re.findall(r'class="curve-(\d)" d="(M4 [^"]+)"', text))
    # 0.1 to 0.4 from 86 to 4: the first line ends with its third result of six.
    assert paths == {"1": "M4 4H241V86H241", "2": "M4 31H122V59H596"}
    rows = re.findall(r"<tr>(.*?)</tr>", text[text.index("<tbody>") :])
    cells = [[cell.strip() for cell in re.findall(r'<td class="number">([^<]*)', row)] for row in rows]
    # Five results the first one never had.
    assert cells == [["3 of 3", "0.1", "–", "–"], ["6 of 6", "0.2", "–", "0.2"]]
    assert "after 5" in text and "after 10" not in text


def test_a_metric_of_one_of_them_may_be_chosen(browser, pair):
    both = {**TWO, "metrics": [{"metricId": "speed", "goal": "MAXIMIZE"}, *TWO["metrics"]]}
    TuningJob.objects.filter(pk=pair[1].pk).update(study=both)
    text = text_of(browser("vera").get(address(pair)))
    # Both have a loss.
    assert "The best loss so far" in text and f"study={pair[1].pk}&amp;metric=speed" in text
    text = text_of(browser("vera").get(address(pair, "&metric=speed")))
    assert "No trial of these studies has a result of this metric." in text


def test_a_study_that_a_person_may_not_see_hides_the_whole_page(browser, cast, pair):
    theirs = a_tuning_job(a_job(cast.elsewhere, cast.charlie), display_name="secret")
    assert browser("vera").get(address([*pair, theirs])).status_code == 404
    assert browser("root").get(address([*pair, theirs])).status_code == 200


@pytest.mark.parametrize(
    "query", ["", "study=1", "study=1&study=1", "study=x", "&".join(f"study={n}" for n in range(6))]
)
def test_fewer_than_two_or_more_than_five_lead_back_to_the_list(browser, query):
    page = browser("vera").get(f"/studies/compare?{query}", follow=True)
    assert page.redirect_chain == [("/studies/", 302)] and "Select 2 to 5 studies to compare." in page.text


def test_the_list_leads_to_it(browser, pair):
    text = text_of(browser("vera").get("/studies/"))
    assert text.count('form="compare-studies"') == 2 and 'action="/studies/compare"' in text
    TuningJob.objects.filter(pk=pair[1].pk).delete()
    assert 'id="compare-studies"' not in text_of(browser("vera").get("/studies/"))
