"""The pages of studies: the list, a study with its trials, plots and curves, and who may do what to it."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from console.presenters.jobs import job_list, job_parts
from console.presenters.stamps import digest
from console.presenters.studies import parallel
from jobs.models import Job, JobLabel, MetricPoint, MetricSeries, Run, Trial, TuningJob, Usage
from tests.unit.console.views.example_rows import a_host, a_job, a_run, a_tuning_job, one_line

pytestmark = pytest.mark.django_db

TWO = {
    "metrics": [{"metricId": "loss", "goal": "MINIMIZE"}],
    "parameters": [
        {
            "parameterId": "lr",
            "doubleValueSpec": {"minValue": 0.001, "maxValue": 1.0},
            "scaleType": "UNIT_LOG_SCALE",
        },
        {"parameterId": "kind", "categoricalValueSpec": {"values": ["adam", "-sgd"]}},
    ],
}


def text_of(answer):
    assert answer.status_code == 200, answer.content[:500]
    return one_line(answer.content.decode())


def a_trial(study, number, loss=None, state="SUCCEEDED", job=None, **changes):
    now = timezone.now()
    job = job or a_job(study.project, study.owner, state="SUCCEEDED", name=f"trial-{number}")
    known = {
        "parameters": {"lr": number / 100, "kind": "-sgd" if number % 2 else "adam"},
        "final": None if loss is None else {"step": 3, "elapsed": 1.0, "metrics": {"loss": loss}},
        "started_at": now - timedelta(minutes=2),
        "ended_at": now,
    }
    return Trial.objects.create(
        tuning_job=study, number=number, state=state, job=job, job_state=job.state, **{**known, **changes}
    )


@pytest.fixture
def study(cast, project):
    """Of five trials asked for, two have results, one has none, one runs, and one waits."""
    first = a_job(project, cast.bob, state="SUCCEEDED", name="trial-1")
    made = a_tuning_job(first, study=TWO, max_trials=5, display_name="search", started_at=timezone.now())
    made.trials.all().delete()
    a_trial(made, 1, 0.5, job=first)
    a_trial(made, 2, 0.25, why={"value": 0.3, "low": 0.2, "high": 0.4, "chance": 0.5})
    a_trial(made, 3, state="INFEASIBLE", infeasible_reason="Its program exited with 7.")
    a_trial(made, 4, state="ACTIVE", ended_at=None)
    a_trial(made, 5, state="REQUESTED", parameters=None, started_at=None, ended_at=None)
    return made


def address(study, rest=""):
    return f"/studies/{study.pk}/{rest}"


def rows_of(text):
    """The numbers of the trials, as the table shows them."""
    return [int(number) for number in re.findall(r'<tr id="trial-(\d+)"', text)]


def test_the_list_shows_progress_and_the_best_value(browser, study):
    text = text_of(browser("vera").get("/studies/"))
    assert address(study) in text and "3 of 5" in text and "1 running" in text
    assert "0.25" in text and "trial 2" in text and "minimize loss" in text


def test_a_trial_that_hosts_failed_under_is_in_no_count(browser, study):
    """Another trial tries its parameters again."""
    a_trial(study, 6, state="INFEASIBLE", infeasible_reason="Hosts failed.", ending="HOSTS")
    assert "3 of 5" in text_of(browser("vera").get("/studies/"))
    for rest in ("", "spec"):  # with its trials, and without
        text = text_of(browser("vera").get(address(study, rest)))
        assert "3 of 5" in text and "1 without a result" in text


def test_the_list_is_filtered_like_that_of_jobs(browser, study):
    vera = browser("vera")
    for query in (
        "text=SEARCH",
        f"text={study.pk}",
        "state=active",
        "state=RUNNING",
        "owner=bob",
        "project=default",
    ):
        assert address(study) in text_of(vera.get(f"/studies/?{query}")), query
    for query in ("text=nothing", "text=7", "state=FAILED", "owner=vera", "project=elsewhere"):
        text = text_of(vera.get(f"/studies/?{query}"))
        assert address(study) not in text and "No study fits these filters." in text, query
    assert address(study) not in text_of(browser("charlie").get("/studies/"))


def test_the_list_leads_on_to_older_studies(browser, cast, project):
    job = a_job(project, cast.bob)
    newest = a_tuning_job(job, display_name="newest")
    TuningJob.objects.bulk_create(
        TuningJob(**{**_columns(newest), "id": newest.pk - number, "display_name": f"study-{number}"})
        for number in range(1, 31)
    )
    first = text_of(browser("vera").get("/studies/"))
    following = re.search(r'href="(/studies/\?after=\d+)" rel="next"', first)[1]
    second = text_of(browser("vera").get(following))
    seen = [set(re.findall(r'href="/studies/(\d+)/"', text)) for text in (first, second)]
    assert (len(seen[0]), len(seen[1]), seen[0] & seen[1]) == (25, 6, set())


def _columns(study):
    return {field.attname: getattr(study, field.attname) for field in TuningJob._meta.fields}


def test_a_study_shows_its_state_its_best_trial_and_all_trials(browser, study):
    text = text_of(browser("vera").get(address(study)))
    assert (
        "3 of 5 trials" in text
        and "1 running" in text
        and "1 waiting" in text
        and "1 without a result" in text
    )
    assert "--lr=0.02 --kind=adam" in text and rows_of(text) == [1, 2, 3, 4, 5]
    assert "Its program exited with 7." in text and "0.3 (0.2 to 0.4), 50 % to be the best" in text
    for trial in study.trials.all():
        assert f'href="/jobs/{trial.job_id}/"' in text
    assert "loss: 2 results, from 0.25 to 0.5; the best is 0.25 of trial 2." in text


@pytest.mark.parametrize(
    ("losses", "is_logarithmic", "heights"),
    [
        ([100.0, 10.0, 1.0], True, [4, 45, 86]),
        ([99.0, 50.0, 1.0], False, [4, 45, 86]),
        ([100.0, 50.0, 0.0], False, [4, 45, 86]),
        ([1.0, 0.0, -1e300], False, [4, 4, 86]),
        ([2.0, 2.0], False, [45, 45]),
    ],
)
def test_results_of_several_magnitudes_are_drawn_by_their_logarithms(
    browser, cast, project, losses, is_logarithmic, heights
):
    made = a_tuning_job(a_job(project, cast.bob, state="SUCCEEDED"), study=TWO, max_trials=5)
    made.trials.all().delete()
    for number, loss in enumerate(losses, 1):
        a_trial(made, number, loss)
    text = text_of(browser("vera").get(address(made)))
    figure = figure_of(text)
    assert ("logarithmic" in figure) is is_logarithmic
    assert heights_of(figure) == heights


def figure_of(text):
    return text.partition('<figure class="chart study">')[2].partition("</figure>")[0]


def heights_of(figure):
    [dots] = re.findall(r'class="dots rest" d="([^"]*)"', figure)
    return [int(y) for y in re.findall(r"M\d+ (\d+)h", dots)]


def links_of(text):
    return [html.unescape(each) for each in re.findall(r'href="([^"]*)"', text)]


def test_the_scale_of_results_is_chosen_by_a_link(browser, study):
    """From 1 to 4 by 2: on a logarithmic scale 2 is in the middle, and each scale leads to the other one."""
    for number, loss in ((1, 1.0), (2, 2.0), (4, 4.0)):
        final = {"step": 1, "elapsed": 1.0, "metrics": {"loss": loss}}
        study.trials.filter(number=number).update(state="SUCCEEDED", final=final, ended_at=timezone.now())
    vera = browser("vera")
    figure = figure_of(text_of(vera.get(f"{address(study)}?sort=-m.loss&from.p.lr=0.001")))
    assert heights_of(figure) == [86, 59, 4] and "Logarithmic scale" in figure
    [to_log] = links_of(figure)
    assert to_log == f"{address(study)}?from.p.lr=0.001&sort=-m.loss&results.m.loss=log#results"
    page = text_of(vera.get(to_log))
    figure = figure_of(page)
    assert heights_of(figure) == [86, 45, 4] and "logarithmic" in figure and "Linear scale" in figure
    # What else leads on from here keeps the choice.
    assert page.count('<input type="hidden" name="results.m.loss" value="log">') == 2
    others = [each for each in links_of(page) if "sort=" in each and "#trials" in each]
    assert others and all("results.m.loss=log" in each for each in others)
    [to_linear] = links_of(figure)
    assert heights_of(figure_of(text_of(vera.get(to_linear)))) == [86, 59, 4]
    assert figure_of(text_of(vera.get(f"{address(study)}?results.m.loss=odd"))) == figure_of(
        text_of(vera.get(address(study)))
    )


def test_results_that_are_not_all_above_zero_have_one_scale(browser, study):
    final = {"step": 1, "elapsed": 1.0, "metrics": {"loss": 0.0}}
    study.trials.filter(number=1).update(final=final)
    figure = figure_of(text_of(browser("vera").get(f"{address(study)}?results.m.loss=log")))
    assert heights_of(figure) == [86, 4] and "ogarithmic" not in figure and not links_of(figure)


def test_the_job_of_a_trial_leads_to_its_study_in_place_of_its_label(browser, study):
    study.trials.filter(number=2).update(number=102)
    job = study.trials.get(number=102).job
    labels = {"trainyard-tuning-job": str(study.pk), "team": "nlp"}
    JobLabel.objects.bulk_create(
        JobLabel(job=job, project=job.project, key=key, value=value) for key, value in labels.items()
    )
    vera, link = browser("vera"), f"{address(study)}?page=3#trial-102"
    before = job_stamps(study, job)
    for page in ("/jobs/?trials=1", f"/jobs/{job.pk}/"):
        text = text_of(vera.get(page))
        assert text.count(f'href="{link}"') == 1 and "team=nlp" in text, page
        assert f"trainyard-tuning-job={study.pk}" not in text, page
    TuningJob.objects.update(deleted_at=timezone.now())
    assert all(old != new for old, new in zip(before, job_stamps(study, job), strict=True))
    for page in ("/jobs/?trials=1", f"/jobs/{job.pk}/"):
        text = text_of(vera.get(page))
        assert link not in text and f"trainyard-tuning-job={study.pk}" in text, page


def job_stamps(study, job):
    return [digest(job_list.stamp(study.owner, {"trials": "1"})), job_parts.part_stamp("job-head", job.pk)]


def test_the_first_fifty_trials_are_on_the_first_page_of_the_study(browser, study):
    job = study.trials.get(number=1).job
    JobLabel.objects.create(job=job, project=job.project, key="trainyard-tuning-job", value=str(study.pk))
    text = text_of(browser("vera").get(f"/jobs/{job.pk}/"))
    assert f'href="{address(study)}#trial-1">search</a>' in text


def test_arguments_to_copy_are_quoted_for_a_shell(browser, study):
    study.study = {
        **TWO,
        "parameters": [
            TWO["parameters"][0],
            {"parameterId": "kind", "categoricalValueSpec": {"values": ["$(id) x"]}},
        ],
    }
    study.save()
    study.trials.filter(number=2).update(parameters={"lr": 0.02, "kind": "$(id) x"})
    text = text_of(browser("vera").get(address(study)))
    assert "&#x27;--kind=$(id) x&#x27;" in text


def test_trials_are_sorted_by_any_column_and_those_without_a_value_come_last(browser, study):
    vera = browser("vera")
    orders = {
        "m.loss": [2, 1, 3, 4, 5],
        "-m.loss": [1, 2, 3, 4, 5],
        "-number": [5, 4, 3, 2, 1],
        "-p.lr": [4, 3, 2, 1, 5],
        "p.kind": [1, 3, 2, 4, 5],
        "nonsense": [1, 2, 3, 4, 5],
        "state": [4, 3, 5, 1, 2],
    }
    for order, expected in orders.items():
        assert rows_of(text_of(vera.get(f"{address(study)}?sort={order}"))) == expected, order


def test_of_several_goals_those_that_no_other_beats_are_best(browser, study):
    study.study = {**TWO, "metrics": [*TWO["metrics"], {"metricId": "speed", "goal": "MAXIMIZE"}]}
    study.save()
    for number, loss, speed in ((1, 0.5, 9.0), (2, 0.25, 1.0)):
        study.trials.filter(number=number).update(
            final={"step": 1, "elapsed": 1.0, "metrics": {"loss": loss, "speed": speed}}
        )
    a_trial(study, 6, final={"step": 1, "elapsed": 1.0, "metrics": {"loss": 0.6, "speed": 0.5}})
    text = text_of(browser("vera").get(address(study)))
    assert "Best trials" in text and text.count(">best</span>") == 2
    assert "--lr=0.01 --kind=-sgd" in text and "--lr=0.02 --kind=adam" in text and "--lr=0.06" not in text


def test_numbers_that_are_none_are_shown_and_never_best(browser, study):
    study.trials.filter(number=2).update(final={"step": 1, "elapsed": 1.0, "metrics": {"loss": "NaN"}})
    a_trial(study, 6, final={"step": 1, "elapsed": 1.0, "metrics": {"loss": "Infinity"}})
    text = text_of(browser("vera").get(address(study)))
    assert "the best is 0.5 of trial 1" in text and ">nan<" in text and ">inf<" in text
    assert (
        "--lr=0.01" in text and rows_of(text_of(browser("vera").get(f"{address(study)}?sort=m.loss")))[0] == 1
    )


def test_a_study_without_results_says_so(browser, study):
    study.trials.update(final=None, state="ACTIVE")
    assert "No trial has a result yet." in text_of(browser("vera").get(address(study)))
    study.state = "FAILED"
    study.save()
    assert "No trial has a result." in text_of(browser("vera").get(address(study)))


def test_the_trials_are_there_as_csv(browser, study):
    study.trials.filter(number=3).update(infeasible_reason="=cmd()")
    answer = browser("vera").get(address(study, "trials.csv"))
    assert answer["Content-Type"].startswith("text/csv") and "attachment" in answer["Content-Disposition"]
    rows = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert [row["trial"] for row in rows] == ["1", "2", "3", "4", "5"]
    assert (rows[1]["loss"], rows[1]["lr"], rows[1]["kind"], rows[1]["state"]) == (
        "0.25",
        "0.02",
        "adam",
        "SUCCEEDED",
    )
    expected = [f"expected.{name}" for name in ("value", "low", "high", "chance")]
    assert [rows[1][name] for name in expected] == ["0.3", "0.2", "0.4", "0.5"]
    assert [rows[0][name] for name in expected] == [""] * 4
    # A spreadsheet would run them as formulas.
    assert rows[0]["kind"] == "'-sgd" and rows[2]["reason"] == "'=cmd()"


def holding(job, host, gpus, since):
    """A run of this job that holds so many GPUs."""
    uuids = [f"GPU-{job.pk}-{number}" for number in range(gpus)]
    return a_run(job, job.replicas.get(), host, gpu_uuids=uuids, created_at=since)


def test_the_trials_say_what_they_cost(browser, study):
    """GPU-hours: of runs that are over, and of one that still holds GPUs. The last one grows from view to view."""
    vera, page = browser("vera"), address(study)
    assert "sort=hours" not in columns_of(text_of(vera.get(page)))
    host, now = a_host(gpus=4), timezone.now()
    for number, gpus, hours, is_over in ((1, 4, 0.5, True), (3, 2, 0.25, True), (4, 1, 8, False)):
        job, since = study.trials.get(number=number).job, now - timedelta(hours=hours)
        run = holding(job, host, gpus, since)
        if is_over:
            Run.objects.filter(pk=run.pk).update(released_at=now)
            held = {"gpus": gpus, "cpus": 1, "began_at": since, "ended_at": now, "owner_name": "bob"}
            Usage.objects.create(run=run, job=job, project=job.project, **held)
    text = text_of(vera.get(page))
    assert "sort=hours" in columns_of(text)
    cells = re.findall(r'data-label="GPU-hours">(?:<span class="none">)?([^<]+)<', text)
    assert cells == ["2.0", "–", "0.5", "8.0", "–"]
    rows = list(csv.DictReader(io.StringIO(vera.get(f"{page}trials.csv").content.decode())))
    assert [round(float(row["gpuHours"]), 2) for row in rows] == [2.0, 0.0, 0.5, 8.0, 0.0]
    found = json.loads(vera.get(f"{page}trials.json").content)
    assert [round(each["gpuHours"], 2) for each in found] == [2.0, 0.0, 0.5, 8.0, 0.0]
    # The column sorts, in the files too.
    assert rows_of(text_of(vera.get(f"{page}?sort=-hours"))) == [4, 1, 3, 2, 5]
    assert rows_of(text_of(vera.get(f"{page}?sort=hours"))) == [3, 1, 4, 2, 5]
    found = json.loads(vera.get(f"{page}trials.json?sort=hours").content)
    assert [each["trial"] for each in found] == [3, 1, 4, 2, 5]


def columns_of(text):
    return re.search(r"<thead>(.*?)</thead>", text[text.index('id="trials"') :])[1]


def test_trials_are_sorted_by_what_was_expected_of_them(browser, study):
    study.trials.filter(number=1).update(why={"value": 0.1, "low": 0.0, "high": 0.2, "chance": 0.5})
    vera, page = browser("vera"), address(study)
    assert "sort=expected" in columns_of(text_of(vera.get(page)))
    assert rows_of(text_of(vera.get(f"{page}?sort=expected"))) == [1, 2, 3, 4, 5]
    assert rows_of(text_of(vera.get(f"{page}?sort=-expected"))) == [2, 1, 3, 4, 5]


def test_ranges_of_axes_filter_the_table_the_lines_and_the_files(browser, study):
    for number in range(6, 12):
        a_trial(study, number, number / 10)
    vera, page = browser("vera"), address(study)
    asked = {
        "from.p.lr=0.07&to.p.lr=0.1": [7, 8, 9, 10],
        "from.p.lr=0.07&to.p.kind=adam": [8, 10],
        "from.p.kind=-sgd&sort=-number": [11, 9, 7, 3, 1],
        "to.m.loss=0.7": [1, 2, 6, 7],
        "from.p.lr=0.05&to.m.loss=0.7": [6, 7],
        "from.p.lr=5": [],
    }
    for query, expected in asked.items():
        text = text_of(vera.get(f"{page}?{query}"))
        assert rows_of(text) == expected, query
        assert f"{len(expected)} of 11 trials are inside of all ranges." in text
        found = json.loads(vera.get(f"{page}trials.json?{query}").content)
        assert [each["trial"] for each in found] == expected
        rows = csv.DictReader(io.StringIO(vera.get(f"{page}trials.csv?{query}").content.decode()))
        assert [int(row["trial"]) for row in rows] == expected
    text = text_of(vera.get(f"{page}?from.p.lr=0.07&to.p.lr=0.1"))
    drawn = re.findall(r'class="line (\w+)" data-trial="(\d+)"', text)
    assert sorted(int(number) for kind, number in drawn if kind == "out") == [1, 2, 6, 11]
    assert (
        'name="from.p.lr" value="0.07"' in text and "from.p.lr=0.07&amp;to.p.lr=0.1&amp;sort=m.loss" in text
    )
    assert f'href="{page}trials.json?from.p.lr=0.07&amp;to.p.lr=0.1"' in text


def test_a_range_that_cannot_be_read_is_named_and_hides_no_trial(browser, study):
    vera, page = browser("vera"), address(study)
    for query, said in (
        ("from.p.lr=much", "lr: “much” is no number. The range is not applied."),
        ("to.p.kind=lion", "kind: “lion” is none of its values. The range is not applied."),
        ("from.p.lr=0.2&to.p.lr=0.1", "lr: the lowest value is above the highest. The range is not applied."),
        ("from.p.lr=nan", "lr: “nan” is no number. The range is not applied."),
    ):
        text = text_of(vera.get(f"{page}?{query}"))
        assert said in text and rows_of(text) == [1, 2, 3, 4, 5], query
    assert "Show all trials" not in text_of(vera.get(page))


def test_axes_are_hidden_and_logarithmic_as_the_address_says(browser, study):
    a_trial(study, 6, 2.5)
    vera, page = browser("vera"), address(study)
    text = text_of(vera.get(page))
    assert re.findall(r'data-axis="([^"]+)"', text) == ["p.lr", "p.kind", "m.loss"]
    text = text_of(vera.get(f"{page}?hide.p.lr=1"))
    assert re.findall(r'data-axis="([^"]+)"', text) == ["p.kind", "m.loss"] and 'name="from.p.lr"' in text
    text = text_of(vera.get(f"{page}?hide.p.lr=1&hide.p.kind=1"))
    assert "Fewer than two axes are shown." in text and 'name="hide.p.lr" value="1" checked' in text
    # 0.25 to 2.5: 0.5 is a ninth of the way, or three tenths of it on a logarithmic scale.
    line = r'data-trial="1" data-value="0.5" d="[^"]*L500 (\d+)"'
    assert re.search(line, text_of(vera.get(page)))[1] == "77"
    assert re.search(line, text_of(vera.get(f"{page}?log.m.loss=1")))[1] == "61"


def test_of_many_trials_the_best_and_a_steady_sample_are_drawn(browser, study, monkeypatch):
    monkeypatch.setattr(parallel, "MOST_LINES", 20)
    many(study, 60)
    vera, page = browser("vera"), address(study)

    def drawn(query=""):
        text = text_of(vera.get(page + query))
        return text, {int(found) for found in re.findall(r'data-trial="(\d+)"', text)}

    text, first = drawn()
    assert "20 of 62 trials are drawn: the best ones, and a sample of the others." in text
    assert {2, 1} | set(range(100, 108)) <= first and len(first) == 20
    a_trial(study, 900, 99.0)
    assert len(first - drawn()[1]) <= 1
    # What is looked for is drawn, whatever the sample is.
    assert {140, 141, 142} <= drawn("?from.p.lr=0.0209&to.p.lr=0.0221")[1]


def test_two_metrics_have_a_front_with_its_table(browser, study):
    study.study = {**TWO, "metrics": [*TWO["metrics"], {"metricId": "speed", "goal": "MAXIMIZE"}]}
    study.save()
    for number, loss, speed in ((1, 0.5, 9.0), (2, 0.25, 1.0), (6, 0.6, 0.5)):
        final = {"step": 1, "elapsed": 1.0, "metrics": {"loss": loss, "speed": speed}}
        if number == 6:
            a_trial(study, 6, final=final)
        study.trials.filter(number=number).update(final=final)
    text = text_of(browser("vera").get(address(study)))
    assert "speed over loss of 3 trials. 2 are on the front" in text
    front = text[text.index("The trials of the front") : text.index("</table>")]
    assert re.findall(r'data-label="loss">([^<]+)<', front) == ["0.25", "0.5"]
    assert 'class="line front" d="M4 81L427 4"' in text


def test_the_parameters_that_matter_are_ranked_and_labelled(browser, study):
    vera, page = browser("vera"), address(study, "parameters")
    text = text_of(vera.get(page))
    assert "This needs 10 trials with a result" in text and "The contour needs more trials" in text
    for number in range(6, 40):
        a_trial(study, number, abs(number / 100 - 0.2))
    text = text_of(vera.get(page))
    assert "lr matters most for reaching the best 4 of 36 trials:" in text and "By PED-ANOVA" in text
    assert text.index('class="mono">lr<') < text.index('class="mono">kind<')
    assert "loss over lr, from 0.001 to 1: the best trial has 0.2." in text
    # The contour is asked for by itself; without scripts a link leads to it.
    contour = address(study, "contour")
    assert f'hx-get="{contour}"' in text and f'href="{contour}"' in text and "shade-1" not in text


def test_the_contour_is_what_the_model_expects_over_two_parameters(browser, study):
    vera, page = browser("vera"), address(study, "contour")
    assert "The contour needs more trials" in text_of(vera.get(page))
    for number in range(6, 40):
        a_trial(study, number, abs(number / 100 - 0.2) + (0.5 if number % 2 else 0.0))
    text = text_of(vera.get(page))
    assert "The other parameters are as in trial 20, the best one." in text
    said = re.search(r"expects the best loss, (\S+), where (\w+) is (\S+) and (\w+) is (\S+)\. The", text)
    found = {said[2]: said[3], said[4]: said[5]}
    assert found["kind"] == "adam" and 0.1 < float(found["lr"]) < 0.4
    assert text.count('class="shade shade-') == 7 and "As a table" in text
    part = text_of(vera.get(f"{page}?across=kind&up=lr", headers={"HX-Request": "true"}))
    assert '<option value="kind" selected>' in part and "<html" not in part
    # The socket may bring this before the answer of hx-get, which would remove a part that says nothing here.
    assert 'hx-select="#study-contour" hx-target="this" hx-swap="outerHTML"' in part
    # A parameter that does not exist, and the same one twice, are answered with two others.
    for query in ("across=nothing&up=lr", "across=lr&up=lr"):
        text = text_of(vera.get(f"{page}?{query}"))
        assert '<option value="kind" selected>' in text and '<option value="lr" selected>' in text


def test_the_specification_is_words_and_the_document_of_rest(browser, study):
    vera = browser("vera")
    text = text_of(vera.get(address(study, "spec")))
    assert "minimize loss" in text and "Bayesian search" in text and "without end" in text
    document = json.loads(vera.get(address(study, "spec?as=json")).content)
    assert document["studySpec"] == TWO and document["trialJobSpec"] == study.trial_spec
    assert (document["maxTrialCount"], document["displayName"]) == (5, "search")


def report(job, host, *values, name="loss", replica="workerpool0-0"):
    run = Run.objects.filter(job=job, replica__name=replica).first()
    series = MetricSeries.objects.create(
        run=run,
        name=name,
        source="hypertune",
        reports=len(values),
        points=len(values),
        step=len(values),
        value=values[-1],
        lowest=min(values),
        highest=max(values),
        at=timezone.now(),
    )
    MetricPoint.objects.bulk_create(
        MetricPoint(series=series, step=step, value=value, at=timezone.now())
        for step, value in enumerate(values, start=1)
    )


def test_curves_are_drawn_of_what_the_programs_reported(browser, cast, project, study):
    vera, host = browser("vera"), a_host()
    assert "No trial has reported this metric yet." in text_of(vera.get(address(study, "curves")))
    stopped = a_job(project, cast.bob, state="CANCELLED", host=host)
    running = a_job(project, cast.bob, host=host)
    a_trial(study, 6, 0.7, job=stopped, stopped_early="Stopped early by the median rule.")
    a_trial(study, 7, job=running, state="ACTIVE", ended_at=None)
    report(stopped, host, 0.9, 0.7)
    report(running, host, 0.8, 0.4, 0.3)
    report(running, host, 77777.5, name="other")
    text = text_of(vera.get(address(study, "curves")))
    assert "loss of 2 trials over their steps, 1 of them running" in text and "0.3 to 0.9" in text
    assert (
        'class="line running"' in text and 'class="line stopped"' in text and 'class="dots stopped"' in text
    )
    assert f"/jobs/{running.pk}/metrics" in text and "77777.5" not in text
    assert "because the primary reported none" not in text


def test_a_curve_of_another_replica_than_the_primary_says_so(browser, cast, project, study):
    host = a_host()
    silent = a_job(project, cast.bob, replicas=2, host=host)
    a_trial(study, 6, job=silent, state="ACTIVE", ended_at=None)
    report(silent, host, 0.5, replica="workerpool1-0")
    text = text_of(browser("vera").get(address(study, "curves")))
    assert "of workerpool1-0, because the primary reported none" in text


def test_a_trial_that_reports_another_metric_says_so_in_its_row_and_on_the_pages_of_its_job(
    browser, cast, project, study
):
    host, ago = a_host(), timezone.now() - timedelta(minutes=11)
    late, late_too, early = (a_job(project, cast.bob, host=host, trial=str(number)) for number in (6, 7, 8))
    for number, job, since in ((6, late, ago), (7, late_too, ago), (8, early, timezone.now())):
        Job.every.filter(pk=job.pk).update(started_at=since)
        a_trial(study, number, job=job, state="ACTIVE", started_at=since, ended_at=None)
    report(late, host, 0.5, name="acc")
    report(late_too, host, 0.5)
    words = "has run for 10 minutes: no loss yet"
    vera = browser("vera")
    table = text_of(vera.get(address(study)))
    assert table.count(words) == 1 and f"Trial 6 {words}; seen: acc." in table
    for job, says in ((late, True), (late_too, False), (early, False)):
        for tab in ("", "metrics"):
            assert (words in text_of(vera.get(f"/jobs/{job.pk}/{tab}"))) is says, (job, tab)


def test_the_specification_has_the_seed_and_a_clone_another_one(browser, study):
    TuningJob.objects.filter(pk=study.pk).update(seed=4711)
    bob = browser("bob")
    text = text_of(bob.get(address(study, "spec")))
    assert "<dt>Seed</dt> <dd>4711</dd>" in text and "&quot;seed&quot;: &quot;4711&quot;" in text
    assert bob.get(address(study, "spec?as=json")).json()["trainyard"] == {"seed": "4711"}
    assert "4711" not in text_of(bob.get(f"/studies/new?study={study.pk}&as=json"))


def test_its_owner_cancels_it_and_deletes_it_when_it_is_over(browser, study):
    bob, page = browser("bob"), address(study)
    text = text_of(bob.get(page))
    assert "cancel" in text and "delete-study" not in text and address(study, "delete") not in text
    for person in ("vera", "bella"):
        assert address(study, "cancel") not in text_of(browser(person).get(page))
        assert browser(person).post(f"{page}cancel").status_code == 403
    assert "Cancel it first." in text_of(bob.post(f"{page}delete", follow=True))
    assert "bob cancelled it" in text_of(bob.post(f"{page}cancel", follow=True))
    study.refresh_from_db()
    assert study.cancel_requested_by == "bob" and address(study, "cancel") not in text_of(bob.get(page))
    TuningJob.objects.filter(pk=study.pk).update(state="CANCELLED", ended_at=timezone.now())
    jobs = Job.objects.count()
    text = text_of(bob.post(f"{page}delete", follow=True))
    assert "“search” is deleted. The jobs of its trials stay." in text and page not in text
    assert bob.get(page).status_code == 404 and Job.objects.count() == jobs


def test_a_deleted_job_of_a_trial_is_not_linked(browser, study):
    trial = study.trials.get(number=1)
    Job.objects.filter(pk=trial.job_id).update(deleted_at=timezone.now())
    text = text_of(browser("vera").get(address(study)))
    assert "job deleted" in text and f'href="/jobs/{trial.job_id}/"' not in text


def many(study, count):
    job = study.trials.first().job
    base = {name: getattr(job, name) for name in ("project", "location_name", "owner", "owner_name", "spec")}
    now = timezone.now()
    jobs = Job.objects.bulk_create(
        Job(
            id=1_600_000_000_000_000_000 + number, display_name=f"t-{number}", state="SUCCEEDED", replica_count=1,
            created_at=now, updated_at=now, queued_at=now, **base,
        )
        for number in range(count)
    )  # fmt: skip
    Trial.objects.bulk_create(
        Trial(
            tuning_job=study, number=100 + number, state="SUCCEEDED", job=each, job_state="SUCCEEDED",
            parameters={"lr": 0.001 + number / 2000, "kind": "adam"}, started_at=now, ended_at=now,
            final={"step": 1, "elapsed": 1.0, "metrics": {"loss": number / 7}},
        )
        for number, each in enumerate(jobs)
    )  # fmt: skip


def test_pages_of_a_thousand_trials_take_as_many_queries_as_those_of_five(browser, study):
    vera = browser("vera")
    rests = ("", "curves", "parameters", "trials.csv")
    pages = (*(address(study, rest) for rest in rests), "/studies/")

    def queries():
        found = []
        for page in pages:
            with CaptureQueriesContext(
                connection,
            ) as asked:
                assert vera.get(page).status_code == 200
            found.append(len(asked))
        return found

    queries()
    few = queries()
    many(study, 995)
    assert queries() == few
    text = text_of(vera.get(address(study)))
    assert "1 to 50 of 1000" in text and len(rows_of(text)) == 50 and "trials are drawn" not in text
    drawn = sum(len(path) for path in re.findall(r' d="([^"]*)"', text))
    assert drawn < 60_000 and text.count("data-trial=") == 997
    last = text_of(vera.get(f"{address(study)}?sort=-number&page=20"))
    assert rows_of(last)[-1] == 1 and "951 to 1000 of 1000" in last
    assert rows_of(text_of(vera.get(f"{address(study)}?sort=-number&page=999"))) == rows_of(last)
