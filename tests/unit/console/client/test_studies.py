"""What the verbs for studies send, and what they show: the state, the best trial, all trials."""

from __future__ import annotations

import json

import pytest

from console.client.verbs.studies import best_trials
from tests.harness.command_line import CommandLine
from tests.unit.console.client.test_connection import Console, console

__all__ = ["Console", "console"]

ALL = "/v1/projects/nlp/locations/-/hyperparameterTuningJobs"
NAME = "projects/nlp/locations/default/hyperparameterTuningJobs/42"
STUDY = {
    "displayName": "lr",
    "maxTrialCount": 8,
    "parallelTrialCount": 2,
    "studySpec": {"metrics": [{"metricId": "loss", "goal": "MINIMIZE"}], "parameters": []},
    "trialJobSpec": {"workerPoolSpecs": []},
}


def trial(number, state="SUCCEEDED", x=0.25, **metrics):
    made = {"id": str(number), "state": state, "parameters": [{"parameterId": "x", "value": x}]}
    if metrics:
        final = [{"metricId": name, "value": value} for name, value in metrics.items()]
        made["finalMeasurement"] = {"stepCount": "1", "metrics": final}
    return {**made, "customJob": f"projects/nlp/locations/default/customJobs/{100 + number}"}


def study(*trials, metrics=(("loss", "MINIMIZE"),), **changes):
    of_metrics = [{"metricId": name, "goal": goal} for name, goal in metrics]
    return {
        **STUDY,
        "name": NAME,
        "state": "JOB_STATE_RUNNING",
        "createTime": "2026-11-23T12:00:00Z",
        "studySpec": {"metrics": of_metrics, "parameters": []},
        "trials": list(trials),
        **changes,
    }


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    return CommandLine(tmp_path_factory.mktemp("client"))


@pytest.fixture
def ask(command, console, tmp_path):
    def run(*words, stdin="", check=True):
        made = {"TRAINYARD_CONSOLE": console.url, "TRAINYARD_TOKEN": "t", "TRAINYARD_PROJECT": "nlp"}
        return command.run(*words, stdin=stdin, check=check, cwd=tmp_path, **made)

    return run


def test_a_file_is_submitted_and_options_win_over_it(ask, console, tmp_path):
    console.answers = [(200, {"Warning": '299 trainyard "it is lost"'}, {"name": NAME})]
    (tmp_path / "search.json").write_text(json.dumps({**STUDY, "max_trial_count": 3, "labels": {"a": "b"}}))
    done = ask("tune", "search.json", "--name", "other", "--label", "team=vision", "--max-trial-count", "20")
    assert done.stdout == "Submitted study 42. Its trials: trainyard study 42\n"
    assert done.stderr == "trainyard: it is lost\n"
    [(method, path, sent)] = console.sent
    assert (method, path) == ("POST", ALL.replace("/-/", "/default/"))
    sent = json.loads(sent)
    assert (sent["displayName"], sent["labels"]) == ("other", {"a": "b", "team": "vision"})
    assert sent["maxTrialCount"] == 20 and "max_trial_count" not in sent and sent["parallelTrialCount"] == 2


def test_a_study_learns_from_earlier_ones(ask, console):
    shown = ask("tune", "--dry-run", "--prior", "41", "--prior", NAME, "-", stdin=json.dumps(STUDY))
    found = json.loads(shown.stdout)["studySpec"]["transferLearningConfig"]
    assert found == {"priorStudyNames": ["41", "42"]}


def test_the_price_of_a_study_is_told_and_nothing_is_submitted(ask, console):
    console.answers = [(200, {}, {"text": "8 trials with 1 GPU each cost at most 8 GPU-hours."})]
    done = ask("tune", "--price", "-", stdin=json.dumps(STUDY))
    assert done.stdout == "8 trials with 1 GPU each cost at most 8 GPU-hours.\n"
    [(method, path, sent)] = console.sent
    assert (method, path) == ("POST", "/api/v1/studies:price")
    sent = json.loads(sent)
    assert (sent["project"], sent["location"]) == ("nlp", "default")
    assert sent["hyperparameterTuningJob"]["maxTrialCount"] == 8


def test_what_gcloud_takes_as_config_is_named_after_its_file(ask, console, tmp_path):
    console.answers = [(200, {}, {"name": NAME})]
    config = {name: STUDY[name] for name in ("studySpec", "trialJobSpec")}
    (tmp_path / "night.json").write_text(json.dumps(config))
    ask("tune", "night.json", "--max-trial-count", "4", "--parallel-trial-count", "2")
    sent = json.loads(console.sent[0][2])
    assert (sent["displayName"], sent["maxTrialCount"], sent["parallelTrialCount"]) == ("night", 4, 2)
    shown = ask("tune", "--dry-run", "-", stdin=json.dumps(config))
    assert json.loads(shown.stdout)["displayName"] == "study" and len(console.sent) == 1


@pytest.mark.parametrize(
    ("text", "why"), [("{", "no JSON"), ("[]", "an object"), ('{"jobSpec": {}}', "no studySpec")]
)
def test_what_is_no_study_is_not_sent(ask, console, text, why):
    done = ask("tune", "-", stdin=text, check=False)
    assert done.returncode == 2 and why in done.stderr and not console.sent


def test_a_list_says_how_far_each_is_and_what_was_best(ask, console):
    # Hosts failed under it, and another one tries its parameters: it is in no count.
    lost = trial(4, "INFEASIBLE") | {"trainyard": {"ending": "HOSTS"}}
    rows = [
        study(trial(1, loss=0.5), trial(2, "ACTIVE"), trial(3, loss=0.125), lost),
        study(trial(1, "INFEASIBLE"), name=NAME[:-2] + "41", displayName="acc", state="JOB_STATE_FAILED"),
    ]
    console.answers = [(200, {}, {"hyperparameterTuningJobs": rows})]
    first, second = ask("studies").stdout.splitlines()[1:]
    assert first.split()[:7] == ["42", "lr", "RUNNING", "2/8", "loss=0.125", "(trial", "3)"]
    assert second.split()[:4] == ["41", "acc", "FAILED", "1/8"]
    ask("studies", "--state", "failed", "--limit", "1")
    assert "filter=state%3D%22JOB_STATE_FAILED%22" in console.sent[-1][1]
    assert "trials.trainyard" in console.sent[-1][1]
    assert "trials.finalMeasurement" in console.sent[-1][1] and "measurements" not in console.sent[-1][1]
    assert len(json.loads(ask("studies", "--json").stdout)) == 2


def test_a_study_is_shown_with_all_its_trials(ask, console):
    trials = [trial(10, "INFEASIBLE", infeasible=0), trial(2, x="a\x1b[2Jb", loss=0.5)]
    trials[0] |= {"infeasibleReason": "Its program reported nothing."}
    trials[0].pop("finalMeasurement")
    console.answers = [(200, {}, study(*trials))]
    done = ask("study", "42")
    lines = done.stdout.splitlines()
    assert console.sent[0][1].startswith(f"{ALL}/42?readMask=")
    assert any(line.split() == ["trials", "2", "of", "8", "are", "over"] for line in lines)
    assert any(line.split()[:4] == ["best", "trial", "2:", "loss=0.5"] for line in lines)
    rows = [line.split() for line in lines if line.split()[:1] in (["2"], ["10"])]
    assert [row[:3] for row in rows] == [["2", "SUCCEEDED", "102"], ["10", "INFEASIBLE", "110"]]
    assert "Its program reported nothing." in lines[-1] and "\x1b" not in done.stdout


COST = {
    "gpuHours": 7.5,
    "price": {"trialCount": 6, "text": "6 trials with 1 GPU each cost about 3 GPU-hours."},
    "outlook": [
        {"trialCount": count, "text": f"The model expects {count} more trials to bring\x1b[2J much."}
        for count in (1, 5, 30)
    ],
    "trials": [{"id": "2", "gpuHours": 7.25}, {"id": "10", "gpuHours": 0.25}],
}


def test_a_study_says_what_it_cost_and_what_more_would_bring(ask, console):
    console.answers = [(200, {}, study(trial(10, loss=0.5), trial(2, loss=0.25))), (200, {}, COST)]
    done = ask("study", "42")
    assert [path for _method, path, _sent in console.sent][1] == "/api/v1/studies/42"
    assert "GPU-hours  7.5\n" in done.stdout and "to come    6 trials with 1 GPU" in done.stdout
    assert "5 more trials" in done.stdout and "30 more" not in done.stdout and "\x1b" not in done.stdout
    rows = [line.split() for line in done.stdout.splitlines() if line.split()[:1] in (["2"], ["10"])]
    assert [row[4] for row in rows] == ["7.25", "0.25"]


def test_of_how_many_more_trials_is_chosen(ask, console):
    console.answers = [(200, {}, study(trial(2, loss=0.25))), (200, {}, COST)]
    done = ask("study", "42", "--more", "30")
    assert "30 more trials" in done.stdout and "5 more" not in done.stdout
    console.answers = [(200, {}, study(trial(2, loss=0.25))), (200, {}, COST)]
    done = ask("study", "42", "--more", "7", check=False)
    assert done.returncode == 2 and "Known: 1, 5, 30." in done.stderr


def test_a_token_that_may_not_ask_for_the_price_shows_the_rest(ask, console):
    refused = (403, {}, {"error": {"message": "This token is for submitting."}})
    console.answers = [(200, {}, study(trial(2, loss=0.25))), refused]
    assert "loss=0.25" in ask("study", "42").stdout


@pytest.mark.parametrize(
    "named", ["42", NAME, f"https://yard.example/v1/{NAME}", "https://yard.example/studies/42/"]
)
def test_a_study_is_named_in_many_ways(ask, console, named):
    console.answers = [(200, {}, study())]
    assert json.loads(ask("study", "--json", named).stdout)["name"] == NAME
    assert console.sent[0][1].rpartition("/")[2] == "42"


def test_without_a_name_it_is_the_newest(ask, console):
    console.answers = [(200, {}, {"hyperparameterTuningJobs": [{"name": NAME}]}), (200, {}, study())]
    ask("study")
    assert console.sent[1][1].startswith(f"/v1/{NAME}?")
    console.answers = [(200, {}, {})]
    done = ask("study", check=False)
    assert done.returncode == 1 and "has no study" in done.stderr
    assert ask("study", "a b", check=False).returncode == 2


def test_each_is_cancelled_or_deleted_and_what_is_refused_is_told(ask, console):
    refused = (400, {}, {"error": {"message": "Only a tuning job that is over can be deleted."}})
    console.answers = [(200, {}, {})]
    assert ask("cancel-study", "41", "42").stdout == "Cancelled: 41\nCancelled: 42\n"
    assert [path for _, path, _ in console.sent] == [f"{ALL}/41:cancel", f"{ALL}/42:cancel"]
    console.answers = [refused, (200, {}, {})]
    done = ask("delete-study", "--yes", "41", "42", check=False)
    assert (done.returncode, done.stdout) == (1, "Deleted: 42\n") and "41: Only a tuning job" in done.stderr
    assert console.sent[-1][:2] == ("DELETE", f"{ALL}/42")
    assert ask("delete-study", "42", check=False).returncode == 2 and len(console.sent) == 4


def test_a_study_is_extended(ask, console):
    console.answers = [(200, {}, {"id": "42", "maxTrialCount": 90, "parallelTrialCount": 4})]
    done = ask("extend-study", NAME, "--max-trial-count", "90", "--parallel-trial-count", "4")
    assert done.stdout.startswith("Study 42 has 90 trials, 4 at once.")
    [(method, path, sent)] = console.sent
    assert (method, path) == ("POST", "/api/v1/studies/42:extend")
    assert json.loads(sent) == {"maxTrialCount": 90, "parallelTrialCount": 4}
    assert ask("extend-study", "42", check=False).returncode == 2


def best(*trials, **changes):
    return [each["id"] for each in best_trials(study(*trials, **changes))]


def test_the_best_trial_is_the_best_by_the_goal():
    trials = [trial(1, loss=0.5), trial(2, loss="NaN"), trial(3, loss=0.1), trial(4, "INFEASIBLE", loss=0.0)]
    assert best(*trials) == ["3"]
    assert best(*trials, metrics=(("loss", "MAXIMIZE"),)) == ["1"]
    assert best(trial(1, loss="-Infinity"), *trials) == ["1"]
    assert best(trial(1), trial(2, "ACTIVE")) == []


def test_of_several_metrics_those_are_best_to_which_none_is_better_in_all():
    both = (("loss", "MINIMIZE"), ("acc", "MAXIMIZE"))
    trials = [
        trial(1, loss=0.1, acc=0.5),
        trial(2, loss=0.2, acc=0.9),
        trial(3, loss=0.2, acc=0.8),
        trial(4, loss=0.1),
    ]
    assert best(*trials, metrics=both) == ["1", "2"]
