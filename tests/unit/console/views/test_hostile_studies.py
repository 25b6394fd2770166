"""Names and values of studies that people chose are text wherever a page of the study shows them."""

from __future__ import annotations

import html

import pytest

from tests.unit.console.views.example_rows import a_host, a_job
from tests.unit.console.views.test_studies import a_trial, address, report, study

__all__ = ["study"]

pytestmark = pytest.mark.django_db

# Without spaces and =, which names of parameters may not have.
MARKUP = (
    "<img/src/onerror>",
    '"><script>alert(2)</script>',
    "'onload/alert('3",
    "</title></svg><b>x",
)


@pytest.mark.parametrize("mark", MARKUP)
@pytest.mark.parametrize("metrics", [1, 2])
def test_hostile_names_and_values_are_text_in_every_plot(browser, study, mark, metrics):
    """Ids of parameters and metrics, and categories: in the table, the axes, the slices, the contour and the curves."""
    names = [f"m{number}{mark}" for number in range(metrics)]
    study.study = {
        "metrics": [{"metricId": name, "goal": "MINIMIZE"} for name in names],
        "parameters": [
            {"parameterId": f"lr{mark}", "doubleValueSpec": {"minValue": 0.001, "maxValue": 1.0}},
            {"parameterId": f"kind{mark}", "categoricalValueSpec": {"values": [f"a{mark}", f"b{mark}"]}},
        ],
    }
    study.save()
    study.trials.all().delete()
    host = a_host()
    for number in range(1, 13):
        final = {
            "step": 1,
            "elapsed": 1.0,
            "metrics": {name: 1 / number + place for place, name in enumerate(names)},
        }
        made = {f"lr{mark}": number / 20, f"kind{mark}": f"{'ab'[number % 2]}{mark}"}
        job = a_job(study.project, study.owner, state="SUCCEEDED", host=host, name=f"trial-{number}")
        a_trial(study, number, job=job, parameters=made, final=final)
        report(job, host, 1.0, 0.5, 0.25, name=names[0])
    for rest in ("", "parameters", "curves", "contour", "spec", "?sort=-number"):
        answer = browser("vera").get(address(study, rest))
        assert answer.status_code == 200, rest
        page = answer.content.decode()
        assert mark not in page, rest
        if rest in ("", "parameters", "curves"):
            assert html.escape(mark) in page and "<svg" in page
