"""The new-study form: as fields and as JSON, from a job, from a study; what is refused stays typed."""

from __future__ import annotations

import json
import os
import re

import pytest
from django.utils import timezone

from console.forms.sample_study import EMPTY_STUDY, SAMPLE_STUDY
from jobs.models import TuningJob
from tests.harness.wait_and_processes import run
from tests.unit.console.views.example_rows import a_host, a_job, a_tuning_job, one_line

pytestmark = pytest.mark.django_db

NEW = "/studies/new"
TRIAL_JOB = SAMPLE_STUDY["trialJobSpec"]
ROWS = {
    "parameters-name": ["lr", "layers", "kind", "width"],
    "parameters-kind": ["DOUBLE", "INTEGER", "CATEGORICAL", "DISCRETE"],
    "parameters-low": ["0.001", "1", "", ""],
    "parameters-high": ["1", "8", "", ""],
    "parameters-values": ["", "", "adam, sgd", "16, 32.5"],
    "parameters-scale": ["UNIT_LOG_SCALE", "UNIT_LINEAR_SCALE", "UNIT_LINEAR_SCALE", "UNIT_LINEAR_SCALE"],
}
TYPED = {
    "mode": "form",
    "action": "submit",
    "project": "default",
    "location": "default",
    "request_id": "form-1",
    "display_name": "search",
    "metric": "loss",
    "goal": "MINIMIZE",
    "max_trials": "12",
    "parallel_trials": "3",
    "trial_job": json.dumps(TRIAL_JOB),
    **ROWS,
}


@pytest.fixture
def bob(browser, cast, project):
    a_host()
    return browser("bob")


def text_of(answer, status=200):
    assert answer.status_code == status, answer.content[:300]
    return one_line(answer.content.decode())


def typed(**changes):
    return {name: value for name, value in {**TYPED, **changes}.items() if value is not None}


# A moment has no field.
BOUND = {"endTime": "2090-01-01T00:00:00Z"}
ENDS = {
    "noise": "HIGH",
    "end_max_time": "12h",
    "end_max_trials": "10",
    "end_no_progress": "4",
    "end_no_progress_time": "90m",
    "end_min_time": "1h",
    "end_min_trials": "2",
    "end_asap": "on",
}
CONFIG = {
    "shouldStopAsap": True,
    "minimumRuntimeConstraint": {"maxDuration": "3600s"},
    "maximumRuntimeConstraint": {"maxDuration": "43200s"},
    "minNumTrials": 2,
    "maxNumTrials": 10,
    "maxNumTrialsNoProgress": 4,
    "maxDurationNoProgress": "5400s",
}
WATCHED = {
    "metric": ["loss", "seconds"],
    "goal": ["MINIMIZE", "MINIMIZE"],
    "threshold": ["", "12.5"],
    "safe-share": ["", "0.8"],
}
BEGIN = ["0.01", "3", "sgd", "16"]


def test_the_form_says_above_the_job_of_a_trial_where_it_comes_from(bob):
    """Code and images are brought by a job: *Tune* on its page takes them along."""
    page = text_of(bob.get("/studies/new"))
    words = page.index("Begin with a job: <em>Tune</em> on its page fills in what follows")
    assert page.index('name="end_asap"') < words < page.index('name="trial_job"')


def test_the_end_of_the_study_thresholds_and_first_values_have_fields(bob):
    """And a clone shows them in the same fields again."""
    form = {**typed(**ENDS), "parameters-default": BEGIN}
    assert bob.post(NEW, form).status_code == 302
    made = TuningJob.objects.get()
    assert made.study["studyStoppingConfig"] == CONFIG and made.study["observationNoise"] == "HIGH"
    defaults = [next(iter(_values(each))).get("defaultValue") for each in made.study["parameters"]]
    assert defaults == [0.01, "3", "sgd", 16.0]
    draft = bob.get(f"{NEW}?study={made.pk}").context["draft"]
    assert draft.mode == "form" and draft.has_end
    shown = {name: str(draft[name].value()) for name in ENDS}
    assert shown == {**ENDS, "end_asap": "True"}
    assert [row.default for row in draft["parameters"].value()] == BEGIN
    text = text_of(bob.get(f"{NEW}?study={made.pk}"))
    assert '<details class="card" open> <summary>When the study ends' in text
    assert '<details class="card"> <summary>When the study ends' in text_of(bob.get(f"{NEW}?sample"))


def _values(parameter):
    return [value for name, value in parameter.items() if name.endswith("ValueSpec")]


def test_a_metric_that_is_only_watched_has_a_threshold(bob):
    assert bob.post(NEW, typed(**WATCHED)).status_code == 302
    made = TuningJob.objects.get()
    [_loss, seconds] = made.study["metrics"]
    assert seconds["safetyConfig"] == {"safetyThreshold": 12.5, "desiredMinSafeTrialsFraction": 0.8}
    rows = bob.get(f"{NEW}?study={made.pk}").context["draft"]["metric"].value()
    assert [(row.name, row.threshold, row.share) for row in rows] == [
        ("loss", "", ""),
        ("seconds", "12.5", "0.8"),
    ]
    # A threshold of zero is left out of the canonical document, and is one all the same.
    made.study["metrics"][1]["safetyConfig"] = {}
    made.save()
    rows = bob.get(f"{NEW}?study={made.pk}").context["draft"]["metric"].value()
    assert rows[1].threshold == "0"


def test_a_threshold_without_its_metric_is_not_lost(bob):
    answer = bob.post(NEW, typed(**{**WATCHED, "metric": ["loss", ""]}))
    assert answer.status_code == 200, "the form again"
    assert not TuningJob.objects.exists()
    assert answer.context["draft"]["metric"].value()[1].threshold == "12.5"


def test_what_is_wrong_with_the_end_stands_at_its_field(bob):
    draft = bob.post(NEW, typed(end_max_time="soon")).context["draft"]
    assert "Write a duration such as" in str(draft.errors["end_max_time"]) and draft.has_end
    draft = bob.post(NEW, typed(end_min_trials="-1", threshold=["much"])).context["draft"]
    assert "end_min_trials" in draft.errors and "metric" in draft.errors and draft.has_end
    form = {**typed(), "parameters-default": ["7", "", "", ""]}
    errors = str(bob.post(NEW, form).context["draft"].errors["parameters"])
    assert "Row 1, value to begin with:" in errors


def test_the_fields_make_the_study_that_they_say(bob):
    answer = bob.post(NEW, typed(algorithm="RANDOM_SEARCH", early_stopping="median_automated_stopping_spec",
                                 selection="BEST_MEASUREMENT", max_failed="4", labels="team=nlp"))  # fmt: skip
    made = TuningJob.objects.get()
    assert answer["Location"] == f"/studies/{made.pk}/"
    assert (made.display_name, made.max_trials, made.parallel_trials, made.max_failed_trials) == (
        "search",
        12,
        3,
        4,
    )
    assert made.labels == {"team": "nlp"} and made.owner_name == "bob" and made.trials.count() == 1
    assert made.study == {
        "metrics": [{"metricId": "loss", "goal": "MINIMIZE"}],
        "parameters": [
            {
                "parameterId": "lr",
                "doubleValueSpec": {"minValue": 0.001, "maxValue": 1.0},
                "scaleType": "UNIT_LOG_SCALE",
            },
            {"parameterId": "layers", "integerValueSpec": {"minValue": "1", "maxValue": "8"}},
            {"parameterId": "kind", "categoricalValueSpec": {"values": ["adam", "sgd"]}},
            {"parameterId": "width", "discreteValueSpec": {"values": [16.0, 32.5]}},
        ],
        "algorithm": "RANDOM_SEARCH",
        "measurementSelectionType": "BEST_MEASUREMENT",
        "medianAutomatedStoppingSpec": {},
    }


def test_sent_twice_it_is_one_study_and_changed_it_is_another(bob):
    first, again = bob.post(NEW, typed()), bob.post(NEW, typed())
    assert first["Location"] == again["Location"] and TuningJob.objects.count() == 1
    assert bob.post(NEW, typed(display_name="another"))["Location"] != first["Location"]
    assert TuningJob.objects.count() == 2


WRONG = [
    ({"display_name": ""}, "Name is required."),
    ({"metric": ""}, "Metric is required."),
    ({"metric": "a b"}, "must not contain whitespace"),
    ({"max_trials": ""}, "is required: how many trials the study may have"),
    ({"max_trials": "many"}, "Enter a whole number."),
    ({"parallel_trials": "0"}, "is required: how many trials may run at once"),
    ({"max_failed": "99"}, "must not be above maxTrialCount"),
    ({"algorithm": "GRID_SEARCH"}, "GRID_SEARCH needs parameters whose values can be counted"),
    ({"parameters-low": ["2", "1", "", ""]}, "Row 1"),
    ({"parameters-low": ["few", "1", "", ""]}, "Row 1"),
    ({"parameters-name": ["lr", "", "kind", "width"]}, "Row 2, name: is required."),
    ({"parameters-values": ["", "", "", "16"]}, "Row 3"),
    ({"parameters-values": ["", "1,2", "adam", "16"]}, "Row 2: a number has a lowest and a highest value."),
    ({"parameters-low": ["0.1", "1", "5", ""]}, "Row 3: a listed parameter has no lowest and highest value."),
    ({**dict.fromkeys(ROWS, [])}, "at least one parameter"),
    ({"trial_job": "{"}, "The text is not JSON"),
    ({"trial_job": "[]"}, "The job of a trial is a JSON object"),
    ({"trial_job": "{}"}, "trial_job_spec.worker_pool_specs"),
    ({"trial_job": json.dumps({**TRIAL_JOB, "enableWebAcess": True})}, "trial_job_spec"),
    ({"labels": "no equals"}, "Write one key=value per line."),
]


@pytest.mark.parametrize(("change", "said"), WRONG, ids=[str(n) for n in range(len(WRONG))])
def test_what_is_wrong_is_said_at_its_field_and_nothing_typed_is_lost(bob, change, said):
    text = text_of(bob.post(NEW, typed(**change)))
    assert said in text and not TuningJob.objects.exists()
    assert 'class="errors"' in text and "Nothing was submitted." in text
    sent = typed(**change)
    for name in ("display_name", "metric", "max_trials", "parallel_trials"):
        assert f'name="{name}" value="{sent[name]}"' in text or not sent[name]
    for column in ("name", "low", "high", "values"):
        for value in filter(None, sent[f"parameters-{column}"]):
            assert f'name="parameters-{column}" value="{value}"' in text


def test_more_rows_are_asked_for_without_complaints(bob):
    text = text_of(bob.post(NEW, typed(action="add", display_name="")))
    shown = text[: text.index("<noscript>")]
    assert shown.count('name="parameters-name"') == 6 and "Nothing was submitted." not in text
    assert 'value="16, 32.5"' in text and not TuningJob.objects.exists()


def test_the_form_becomes_json_and_a_form_again(bob):
    text = text_of(bob.post(NEW, typed(action="json")))
    assert "New study as JSON" in text and "&quot;parameterId&quot;: &quot;width&quot;" in text
    assert "hyperparameterTuningJobs" in text and "curl --fail-with-body" in text
    document = {**SAMPLE_STUDY, "displayName": "as-json"}
    back = text_of(bob.post(NEW, typed(mode="json", action="form", text=json.dumps(document))))
    assert (
        'name="mode" value="form"' in back and 'value="learning_rate"' in back and 'value="as-json"' in back
    )


CONDITIONS = {
    "parameters-name": ["kind", "momentum", "nesterov", "depth", "rate"],
    "parameters-kind": ["CATEGORICAL", "INTEGER", "DOUBLE", "DISCRETE", "DOUBLE"],
    "parameters-low": ["", "1", "0", "", "0.1"],
    "parameters-high": ["", "3", "1", "", "0.5"],
    "parameters-values": ["adam, sgd, lion", "", "", "2, 4.5", ""],
    "parameters-scale": ["UNIT_LINEAR_SCALE"] * 5,
    "parameters-parent": ["", "kind", "momentum", "", "depth"],
    "parameters-when": ["", "sgd, lion", "2", "", "4.5"],
}


def test_rows_below_others_are_conditions_and_become_rows_again(bob):
    bob.post(NEW, typed(**CONDITIONS))
    made = TuningJob.objects.get()
    kind, depth = made.study["parameters"]
    [below] = kind["conditionalParameterSpecs"]
    assert below["parentCategoricalValues"] == {"values": ["sgd", "lion"]}
    [deepest] = below["parameterSpec"]["conditionalParameterSpecs"]
    assert (
        deepest["parentIntValues"] == {"values": ["2"]}
        and deepest["parameterSpec"]["parameterId"] == "nesterov"
    )
    [other] = depth["conditionalParameterSpecs"]
    assert (
        other["parentDiscreteValues"] == {"values": [4.5]} and other["parameterSpec"]["parameterId"] == "rate"
    )
    clone = text_of(bob.get(f"{NEW}?study={made.pk}"))
    assert 'name="mode" value="form"' in clone
    for name in ("name", "parent", "when"):
        shown = re.findall(rf'name="parameters-{name}" value="([^"]*)"', clone)
        assert shown[:5] == CONDITIONS[f"parameters-{name}"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"parameters-parent": ["", "knid", "", "", ""]}, "Row 2: no row above has the name “knid”."),
        ({"parameters-parent": ["", "", "", "", ""]}, "Row 2: these values are of which parameter?"),
        (
            {"parameters-when": ["", "sgdd", "2", "", "4.5"]},
            "Row 2, only for: &quot;sgdd&quot; is not a value of",
        ),
        ({"parameters-when": ["", "sgd", "9", "", "4.5"]}, "Row 3, only for:"),
        ({"parameters-high": ["", "3", "-1", "", "0.5"]}, "Row 3, highest value: must not be below minValue"),
        ({"parameters-parent": ["", "kind", "momentum", "", "nesterov"]}, "Row 5, only for:"),
    ],
)
def test_what_is_wrong_with_a_condition_is_said_at_its_row(bob, change, said):
    text = text_of(bob.post(NEW, typed(**{**CONDITIONS, **change})))
    assert said in text, re.findall(r'class="errors".*?</', text)
    assert not TuningJob.objects.exists()


def test_a_pasted_space_becomes_rows_and_what_is_no_space_stays_typed(bob):
    space = "parameters:\n  - {name: depth, parameterType: int, feasibleSpace: {min: 1, max: 8}}"
    text = text_of(bob.post(NEW, typed(action="paste", space=space)))
    names = re.findall(r'name="parameters-name" value="([^"]*)"', text)
    typed_names = ["lr", "layers", "kind", "width", "depth", "", ""]
    assert names[:7] == typed_names and not any(names[7:]) and "feasibleSpace" not in text
    text = text_of(bob.post(NEW, typed(action="paste", space="{a: [")))
    assert "The text is neither JSON nor YAML: line 1." in text and "{a: [</textarea>" in text
    # Rows above them count: more fields than Django reads would come back as an error, without what was typed.
    many = "{" + ", ".join(f"p{number}: {{min: 0, max: 1}}" for number in range(97)) + "}"
    text = text_of(bob.post(NEW, typed(action="paste", space=f"parameters: {many}")))
    assert "The study would have 101 parameters. Give at most 100." in text and "p96: {min" in text
    # A number that is none is shown as it was written, and the parser says what is wrong with it.
    text = text_of(bob.post(NEW, typed(action="paste", space=f"parameters: {{p: {{max: 0x{'F' * 300}}}}}")))
    assert re.search(r'name="parameters-high" value="\d{362}"', text)
    assert not TuningJob.objects.exists()


SUMMARY = "/studies/new/summary"


def test_the_summary_says_how_large_the_space_is_and_what_it_may_cost(bob):
    gpus = json.loads(json.dumps(TRIAL_JOB))
    pool = gpus["workerPoolSpecs"][0]
    pool["machineSpec"] = {"acceleratorType": "NVIDIA_TESLA_T4", "acceleratorCount": 4}
    gpus["workerPoolSpecs"] = [pool, pool]
    gpus["scheduling"] = {"timeout": "5400s"}
    finite = {**ROWS, "parameters-kind": ["DISCRETE", "INTEGER", "CATEGORICAL", "DISCRETE"],
              "parameters-low": ["", "1", "", ""], "parameters-high": ["", "8", "", ""],
              "parameters-values": ["1", "", "adam, sgd", "16"]}  # fmt: skip
    cases = [
        ({}, "The space: 4 parameters, continuous.", "no GPU; 12 trials of at most 10 min each."),
        (
            {"trial_job": json.dumps(gpus)},
            "",
            "at most 144 GPU-hours: 12 trials with 8 GPUs for at most 1 h 30 min each.",
        ),
        ({**finite, "max_trials": "50"}, "4 parameters, 16 points.", "16 trials of"),
        # No study may have more than 10,000.
        (
            {"trial_job": json.dumps(gpus), "max_trials": "1" + "0" * 400},
            "",
            "at most 120000 GPU-hours: 10000",
        ),
        ({"parameters-low": ["2", "1", "", ""]}, "The space: not complete yet.", "12 trials"),
        ({**dict.fromkeys(ROWS, [])}, "The space: no parameters yet.", "12 trials"),
        ({"max_trials": ""}, "continuous", "say how many trials there may be."),
        ({"trial_job": "{"}, "continuous", "the job of each trial is not complete yet."),
        ({"metric": "", "display_name": ""}, "continuous", "12 trials"),
    ]
    for changes, space, budget in cases:
        text = text_of(bob.post(SUMMARY, typed(**changes)))
        assert space in text and budget in text, (changes, text)
    assert "The space: 2 parameters, continuous." in text_of(bob.get(f"{NEW}?sample"))


def test_several_metrics_are_rows(bob):
    text = text_of(
        bob.post(NEW, typed(metric=["loss", "", "loss"], goal=["MINIMIZE", "MAXIMIZE", "MAXIMIZE"]))
    )
    assert "has two metrics" in text and text.count('name="metric"') == 3
    bob.post(NEW, typed(metric=["loss", "speed"], goal=["MINIMIZE", "MAXIMIZE"]))
    made = TuningJob.objects.get()
    assert made.study["metrics"] == [
        {"metricId": "loss", "goal": "MINIMIZE"},
        {"metricId": "speed", "goal": "MAXIMIZE"},
    ]
    clone = text_of(bob.get(f"{NEW}?study={made.pk}"))
    assert re.findall(r'name="metric" value="([^"]*)"', clone) == ["loss", "speed", ""]
    assert "goal" in text_of(bob.post(NEW, typed(goal="LARGE"))) and TuningJob.objects.count() == 1


def test_what_the_fields_cannot_show_stays_json(bob):
    study = {**SAMPLE_STUDY["studySpec"], "studyStoppingConfig": {"maximumRuntimeConstraint": BOUND}}
    document = json.dumps({**SAMPLE_STUDY, "studySpec": study})
    text = text_of(bob.post(NEW, typed(mode="json", action="form", text=document)))
    assert (
        "It stays JSON." in text and 'name="mode" value="json"' in text and "maximumRuntimeConstraint" in text
    )
    bob.post(NEW, typed(mode="json", text=document))
    assert TuningJob.objects.get().study["studyStoppingConfig"] == {"maximumRuntimeConstraint": BOUND}


def test_errors_of_json_name_the_fields_of_the_document(bob):
    text = text_of(bob.post(NEW, typed(mode="json", text=json.dumps({"displayName": "x"}))))
    assert "The document has errors" in text and "<code>study_spec</code>" in text
    assert "The text is not JSON" in text_of(bob.post(NEW, typed(mode="json", text="{")))


def test_values_of_secrets_do_not_come_back(bob):
    secret = {"name": "TOKEN", "value": "hunter2", "secret": True}
    pool = TRIAL_JOB["workerPoolSpecs"][0]
    spec = {
        **TRIAL_JOB,
        "workerPoolSpecs": [{**pool, "containerSpec": {**pool["containerSpec"], "env": [secret]}}],
    }
    by_json = {**SAMPLE_STUDY, "displayName": "", "trialJobSpec": spec}
    # The mistake is in the same field as the secret.
    wrong = json.loads(json.dumps(spec))
    wrong["workerPoolSpecs"][0]["machineSpec"] = {"machineType": "no-such-machine"}
    for changes in (
        {"trial_job": json.dumps(spec), "display_name": ""},
        {"trial_job": json.dumps(wrong)},
        {"trial_job": json.dumps(spec), "action": "add"},
        {"trial_job": json.dumps(spec), "action": "json"},
        {"mode": "json", "text": json.dumps(by_json)},
        {"mode": "json", "text": json.dumps(by_json), "action": "form"},
    ):
        text = text_of(bob.post(NEW, typed(**changes)))
        assert "TOKEN" in text and "hunter2" not in text, changes
    made = bob.post(NEW, typed(trial_job=json.dumps(spec)))["Location"]
    for page in (f"{made}spec", f"{made}spec?as=json", f"/studies/new?study={made.split('/')[2]}"):
        text = text_of(bob.get(page))
        assert "TOKEN" in text and "hunter2" not in text


def test_a_study_of_a_job_and_a_clone_of_a_study_begin_with_what_is_there(bob, cast, project):
    job = a_job(project, cast.bob, name="train")
    assert f'href="/studies/new?job={job.pk}"' in text_of(bob.get(f"/jobs/{job.pk}/"))
    text = text_of(bob.get(f"{NEW}?job={job.pk}"))
    assert 'value="train-study"' in text and "echo hi" in text
    bob.post(NEW, typed())
    made = TuningJob.objects.get()
    clone = text_of(bob.get(f"{NEW}?study={made.pk}"))
    assert (
        'value="search"' in clone and 'value="16, 32.5"' in clone and 'name="max_trials" value="12"' in clone
    )
    TuningJob.objects.filter(pk=made.pk).update(
        study={**made.study, "studyStoppingConfig": {"maximumRuntimeConstraint": BOUND}}
    )
    assert 'name="mode" value="json"' in text_of(bob.get(f"{NEW}?study={made.pk}"))


def test_tune_on_the_job_of_a_trial_takes_over_no_values_of_that_trial(bob, cast, project):
    job = a_job(project, cast.bob, name="trial")
    study = a_tuning_job(job)
    pool = job.spec["workerPoolSpecs"][0]
    container = pool["containerSpec"]
    drawn = {
        **container,
        "args": ["--lr=0.02"],
        "env": [{"name": "TRAINYARD_LOG_METRICS", "value": "of-the-trial"}],
    }
    job.spec = {**job.spec, "workerPoolSpecs": [{**pool, "containerSpec": drawn}]}
    job.save()
    text = text_of(bob.get(f"{NEW}?job={job.pk}"))
    assert "echo hi" in text and "--lr=0.02" not in text and "of-the-trial" not in text
    TuningJob.every.filter(pk=study.pk).update(deleted_at=timezone.now())
    text = text_of(bob.get(f"{NEW}?job={job.pk}"))
    assert "echo hi" in text and "--lr=0.02" not in text and "of-the-trial" not in text
    study.trials.all().delete()
    assert "--lr=0.02" in text_of(bob.get(f"{NEW}?job={job.pk}"))


def test_the_program_of_the_empty_form_reports_whatever_is_asked_for(tmp_path):
    container = EMPTY_STUDY["trialJobSpec"]["workerPoolSpecs"][0]["containerSpec"]
    metrics = tmp_path / "metrics"
    known = {
        "TRAINYARD_METRICS": str(metrics),
        "TRAINYARD_LOG_METRICS": "accuracy,loss",
        "PATH": os.environ["PATH"],
    }
    arguments = ["--lr=0.02", "--kind=adam", "--offset=-3"]
    environment = [f"{name}={value}" for name, value in known.items()]
    run("env", "-i", *environment, *container["command"], *arguments)
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert len(rows) == 10 and {name for row in rows for name in row} == {"accuracy", "loss", "step"}


def test_more_rows_come_without_the_rest_of_the_form(bob):
    """A secret value never comes back, so the text that holds it must not be exchanged."""
    text = text_of(bob.post(NEW, typed(action="add")))
    button = text[text.index('<div class="with-scripts actions">') :]
    button = button[: button.index("More rows")]
    assert 'hx-select="#parameter-rows > .parameter-row.spare"' in button and 'hx-swap="beforeend"' in button
    rows, _, folded = text[text.index('id="parameter-rows"') :].partition("<noscript>")
    assert rows.count('class="parameter-row spare"') == 2
    # A browser without scripts would send the whole form. There the button is hidden, and rows unfold.
    folded = folded.partition("</noscript>")[0]
    assert "More rows" in folded and folded.count('class="parameter-row spare"') == 10
    assert "<button" not in folded and "Parameter 16</legend>" in folded
    assert "Parameter 1</legend>" in rows and "Parameter 1</legend>" not in folded


def test_an_answer_to_a_script_has_no_folded_rows(bob):
    """htmx makes elements of what stands in noscript, and so their inputs would be sent with each form."""
    text = text_of(bob.post(NEW, typed(action="add"), headers={"HX-Request": "true"}))
    assert "<noscript>" not in text and text.count('name="parameters-name"') == 6


def test_an_answer_that_meets_typed_text_has_a_verdict_to_show(bob):
    """static/form.js puts the verdict of the answer in the place of the one that is shown."""
    for mode in ({"mode": "form", "display_name": ""}, {"mode": "json", "text": "{"}):
        for page in (bob.get(f"{NEW}?{'as=json' * (mode['mode'] == 'json')}"), bob.post(NEW, typed(**mode))):
            assert re.search(r'<div id="draft" [^>]*> <div class="verdict stack">', text_of(page)), mode


def test_nobody_begins_with_what_they_may_not_see(browser, cast, project):
    job = a_job(project, cast.bob)
    study = a_tuning_job(job)
    for query in (f"job={job.pk}", f"study={study.pk}", "job=7", "study=x", "study=", "continue="):
        assert browser("charlie").get(f"{NEW}?{query}").status_code == 404, query


def test_the_sample_is_accepted_as_it_is(bob):
    text = text_of(bob.get(f"{NEW}?sample"))
    assert 'value="hello-study"' in text and 'value="learning_rate"' in text
    answer = bob.post(NEW, typed(mode="json", text=json.dumps(SAMPLE_STUDY)))
    assert answer.status_code == 302 and TuningJob.objects.get().display_name == "hello-study"


def test_a_person_of_another_project_cannot_submit_here(browser, cast, project):
    text = text_of(browser("charlie").post(NEW, typed()))
    assert "Select a valid choice" in text and not TuningJob.objects.exists()


def test_a_study_with_a_seed_stays_json(bob):
    space = [{"parameterId": "n", "integerValueSpec": {"minValue": "1", "maxValue": "8"}}]
    study = {"metrics": [{"metricId": "loss", "goal": "MINIMIZE"}], "parameters": space}
    document = {"displayName": "again", "studySpec": study, "maxTrialCount": 4, "parallelTrialCount": 2}
    document |= {"trialJobSpec": TRIAL_JOB, "trainyard": {"seed": 7}}
    place = {name: TYPED[name] for name in ("project", "location", "request_id")}
    text = text_of(bob.post(NEW, {**place, "mode": "json", "text": json.dumps(document), "action": "form"}))
    assert "It stays JSON." in text and "&quot;seed&quot;: &quot;7&quot;" in text


NO_EFFECT = (
    "Kept and shown, but without effect on hosts of your own: studySpec.metrics[1].safetyConfig.desired"
)


def test_fields_without_effect_are_told_beside_the_form_and_after_the_submit(bob):
    watched = {**WATCHED, "metric": ["loss", "latency"]}
    assert NO_EFFECT in text_of(bob.post(SUMMARY, typed(**watched)))
    assert "only the default search avoids" not in text_of(bob.post(SUMMARY, typed(**watched)))
    chance = typed(**watched, algorithm="RANDOM_SEARCH")
    words = "RANDOM_SEARCH does not look at the threshold of latency (safetyConfig): only the default search avoids"
    assert words in text_of(bob.post(SUMMARY, chance))
    told = text_of(bob.post(NEW, chance, follow=True))
    assert words in told and NO_EFFECT in told
    # Of a form that is not complete nothing is said.
    assert NO_EFFECT not in text_of(bob.post(SUMMARY, typed(**watched, display_name="")))


def test_an_archived_project_takes_none_and_lost_arguments_are_warned_of(bob, project):
    shell = {
        **TRIAL_JOB["workerPoolSpecs"][0],
        "containerSpec": {"imageUri": "host", "command": ["bash", "-c", "python3 x.py"]},
    }
    lost = {**TRIAL_JOB, "workerPoolSpecs": [shell]}
    text = text_of(bob.post(NEW, typed(trial_job=json.dumps(lost)), follow=True))
    assert "The parameters of trials do not reach the program of workerpool0" in text
    project.archived_at = timezone.now()
    project.save()
    assert bob.post(NEW, typed(request_id="form-2")).status_code == 403
    assert TuningJob.objects.count() == 1
