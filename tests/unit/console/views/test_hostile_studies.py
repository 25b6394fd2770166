"""Names and values of studies that people chose are text wherever a page or a file of the study shows them."""

from __future__ import annotations

import csv
import html
import io
import json
import re

import pytest

from agents.infra.text import visible
from tests.unit.console.views.example_rows import a_host, a_job, a_tuning_job
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
# Letters that nobody sees, and that turn what follows them. No id and no display name may have them.
HIDDEN = ("x\u202egnp.exe", "\u2066\u200b\ufeffx")
PLOTS = ("", "parameters", "contour", "curves", "scatter", "timeline")
WITH_CATEGORIES = ("", "parameters", "contour")
PAGES = (*PLOTS, "spec", "?sort=-number", "parameters?scale=log", "curves?scale=linear")
# What a program may report, as it is stored; and what no axis is made for.
ODD = (
    "NaN",
    "Infinity",
    "-Infinity",
    1e308,
    -1e308,
    5e-324,
    0.0,
    1e308,
    "NaN",
    1.0,
    1.0000000000000002,
    2**53,
)

# Where a drawing puts things.
PLACES = re.compile(' (d|points|transform|viewBox|width|height|c?[xy][12]?)="([^"]*)"')


def hostile(study, mark, metrics=1, values=None):
    """Twelve trials with this mark in all that people name; each has a result, a curve and a prediction."""
    of_id = "" if mark in HIDDEN else mark
    names = [f"m{number}{of_id}" for number in range(metrics)]
    study.study = {
        "metrics": [{"metricId": name, "goal": "MINIMIZE"} for name in names],
        "parameters": [
            {"parameterId": f"lr{of_id}", "doubleValueSpec": {"minValue": 0.001, "maxValue": 1.0}},
            {"parameterId": f"kind{of_id}", "categoricalValueSpec": {"values": [f"a{mark}", f"b{mark}"]}},
        ],
    }
    study.display_name = f"search{of_id}"
    study.save()
    study.trials.all().delete()
    host = a_host()
    for number in range(1, 13):
        value = values[number - 1] if values else 1 / number
        final = {"step": 1, "elapsed": 1.0, "metrics": dict.fromkeys(names, value)}
        made = {f"lr{of_id}": number / 20, f"kind{of_id}": f"{'ab'[number % 2]}{mark}"}
        job = a_job(study.project, study.owner, state="SUCCEEDED", host=host, name=f"trial-{number}")
        why = {"value": 0.3, "low": 0.2, "high": 0.4, "chance": 0.5}
        a_trial(study, number, job=job, parameters=made, final=final, why=why)
        report(job, host, 1.0, 0.5, 0.25, name=names[0])
    a_trial(study, 13, state="INFEASIBLE", infeasible_reason=f"It said {of_id}")
    return names


def page_of(client, path):
    """Without what a button copies and a form sends: nobody sees that."""
    answer = client.get(path)
    assert answer.status_code == 200, path
    return re.sub(' (data-copy|value)="[^"]*"', "", answer.content.decode())


@pytest.mark.parametrize("mark", [*MARKUP, *HIDDEN], ids=ascii)
@pytest.mark.parametrize("metrics", [1, 2])
def test_hostile_names_and_values_are_text_in_every_plot(browser, study, mark, metrics):
    """Ids of parameters and metrics, and categories: in the table, the axes, the slices, the contour and the curves."""
    hostile(study, mark, metrics)
    vera = browser("vera")
    for rest in PAGES:
        page = page_of(vera, address(study, rest))
        assert mark not in page, rest
        assert not set("\u202e\u2066\u200b\ufeff") & set(page), rest
        if rest in (PLOTS if mark in MARKUP else WITH_CATEGORIES):
            assert html.escape(visible(mark)) in page, rest
            # The best of two metrics is no point of a plane of parameters.
            assert "<svg" in page or (rest, metrics) == ("contour", 2), rest


@pytest.mark.parametrize("mark", MARKUP, ids=ascii)
def test_hostile_names_are_text_in_the_list_and_in_comparisons(browser, study, mark):
    hostile(study, mark)
    other = a_tuning_job(a_job(study.project, study.owner), study=study.study, display_name=f"other{mark}")
    other.trials.all().delete()
    a_trial(other, 1, parameters={}, final={"step": 1, "elapsed": 1.0, "metrics": {f"m0{mark}": 0.5}})
    for path in ("/studies/", f"/studies/compare?study={study.pk}&study={other.pk}"):
        page = page_of(browser("vera"), path)
        assert mark not in page and html.escape(f"other{mark}") in page, path
        assert html.escape(f"m0{mark}") in page, path


@pytest.mark.parametrize("mark", [*MARKUP, *HIDDEN, "+1+cmd|'/C'!A0"], ids=ascii)
def test_hostile_names_are_data_in_files(browser, study, mark):
    """Files are downloads, and of a type that no browser takes for a page."""
    (metric,) = hostile(study, mark)
    kind = study.study["parameters"][1]["parameterId"]
    study.trials.filter(number=1).update(parameters={kind: mark}, infeasible_reason=f"It said {mark}")
    vera = browser("vera")
    answer = vera.get(address(study, "trials.json"))
    first = json.loads(answer.content)[0]
    assert first["parameters"] == {kind: mark} and first["metrics"] == {metric: 1.0}
    assert answer["Content-Type"].startswith("application/json")
    sheet = vera.get(address(study, "trials.csv"))
    rows = list(csv.DictReader(io.StringIO(sheet.content.decode(), newline="")))
    assert rows[0][metric] == "1.0" and rows[0]["reason"] == f"It said {mark}"
    assert rows[0][kind] == (f"'{mark}" if mark[0] in "+=-@" else mark)
    assert sheet["Content-Type"].startswith("text/csv")
    for each in (answer, sheet):
        assert "attachment" in each["Content-Disposition"] and each["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("metrics", [1, 2])
def test_odd_results_are_drawn_or_left_out_and_no_axis_has_them_as_a_place(browser, study, metrics):
    """NaN, infinities, and numbers whose difference is none."""
    (first, *_) = hostile(study, "", metrics, values=ODD)
    vera = browser("vera")
    other = a_tuning_job(a_job(study.project, study.owner), study=study.study, display_name="other")
    for path in (
        *(address(study, rest) for rest in PAGES),
        "/studies/",
        f"/studies/compare?study={study.pk}&study={other.pk}",
    ):
        page = page_of(vera, path)
        places = [
            place for _, place in PLACES.findall(" ".join(re.findall("<svg.*?</svg>", page, re.DOTALL)))
        ]
        assert not [place for place in places if re.search("nan|inf|e[+-]?[0-9]", place.lower())], path
    rows = json.loads(vera.get(address(study, "trials.json")).content)
    assert [row["metrics"].get(first) for row in rows[:3]] == ["NaN", "Infinity", "-Infinity"]
