"""Hyperparameter tuning jobs as scripts use them: the resource on the wire, its list, refusals, rights."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from console.api.tuning import documents
from jobs.models import Job, Trial, TuningJob
from jobs.rules.tuning.trials import Measurement
from jobs.tuning import measured
from tests.unit.jobs.tuning.conftest import asked

pytestmark = pytest.mark.django_db

P = "projects/default/locations/us-central1"
TUNING = f"/v1/{P}/hyperparameterTuningJobs"
# As Google's SDK sends it: enumerations by number, doubles, zeros left out.
FROM_SDK = {
    "displayName": "hp",
    "maxTrialCount": 4,
    "parallelTrialCount": 2,
    "studySpec": {
        "metrics": [{"metricId": "accuracy", "goal": 1}],
        "parameters": [
            {"parameterId": "lr", "doubleValueSpec": {"minValue": 0.001, "maxValue": 0.1}, "scaleType": 2},
            {
                "parameterId": "units",
                "integerValueSpec": {"minValue": "4", "maxValue": "128"},
                "scaleType": 1,
            },
            {"parameterId": "optimizer", "categoricalValueSpec": {"values": ["sgd", "adam"]}},
        ],
        "measurementSelectionType": 2,
    },
    "trialJobSpec": {
        "workerPoolSpecs": [
            {
                "machineSpec": {"machineType": "n1-standard-4"},
                "replicaCount": "1",
                "containerSpec": {"imageUri": "host", "command": ["python3", "train.py"]},
            }
        ]
    },
}


def created(client, **changes):
    answer = client.post(TUNING, {**FROM_SDK, **changes}, content_type="application/json")
    assert answer.status_code == 200, answer.content
    return answer.json()


def test_a_tuning_job_comes_back_as_the_client_reads_it(script):
    bob = script("bob")
    made = created(bob, labels={"team": "vision"})
    row = TuningJob.objects.get()
    assert made["name"] == f"{P}/hyperparameterTuningJobs/{row.pk}"
    assert (made["state"], made["maxTrialCount"], made["parallelTrialCount"]) == ("JOB_STATE_QUEUED", 4, 2)
    assert made["studySpec"]["metrics"] == [{"metricId": "accuracy", "goal": "MAXIMIZE"}]
    assert made["studySpec"]["parameters"][1] == {
        "parameterId": "units",
        "integerValueSpec": {"minValue": "4", "maxValue": "128"},
    }
    assert made["labels"] == {"team": "vision"}
    assert made["trials"] == [{"name": f"{made['name']}/trials/1", "id": "1", "state": "REQUESTED"}]
    assert script("vera").get(f"/v1/{made['name']}").json() == made
    masked = bob.get(f"/v1/{made['name']}?readMask=name,displayName").json()
    assert masked == {"name": made["name"], "displayName": "hp"}
    of_trials = bob.get(f"/v1/{made['name']}?readMask=trials.id,study_spec.metrics,trials.state").json()
    assert of_trials == {
        "trials": [{"id": "1", "state": "REQUESTED"}],
        "studySpec": {"metrics": [{"metricId": "accuracy", "goal": "MAXIMIZE"}]},
    }
    assert bob.get(f"/v1beta1/{made['name']}").json() == made


def test_a_study_that_cannot_go_on_says_why(script):
    made = created(script("bob"))
    seed = {"drawnBySeed": str(TuningJob.objects.get().seed)}
    assert made["trainyard"] == seed
    TuningJob.objects.update(reason="Trial 3 cannot be submitted: it is late.")
    url = f"/v1/{made['name']}"
    reason = {"reason": "Trial 3 cannot be submitted: it is late."}
    assert script("vera").get(url).json()["trainyard"] == {**seed, **reason}
    TuningJob.objects.update(state="SUCCEEDED")
    assert script("vera").get(url).json()["trainyard"] == seed


def test_the_seed_that_a_document_gives_is_kept_and_told(script):
    bob = script("bob")
    made = created(bob, trainyard={"seed": "9223372036854775807"})
    assert made["trainyard"] == {"drawnBySeed": "9223372036854775807"}
    number = made["name"].rpartition("/")[2]
    assert bob.get(f"/api/v1/studies/{number}").json()["seed"] == "9223372036854775807"
    # What was read may be submitted again: nobody asked for the same points.
    assert created(bob, trainyard=made["trainyard"])["trainyard"] != made["trainyard"]


def test_a_trial_shows_its_parameters_measurements_and_job(script):
    made = created(script("bob"))
    # A database may keep the keys in another order than the study has.
    now, point = timezone.now(), {"optimizer": "sgd", "units": 16, "lr": 0.01}
    final = {"step": 3, "elapsed": 1.5, "metrics": {"loss": "NaN", "accuracy": 0.9}}
    curve = [{"step": 1, "elapsed": 0.5, "metrics": {"accuracy": 0.5}}, final]
    over = {"state": "SUCCEEDED", "started_at": now, "ended_at": now}
    Trial.objects.update(parameters=point, final=final, measurements=curve, **over)
    job = Job.objects.get()
    trial = script("bob").get(f"/v1/{made['name']}").json()["trials"][0]
    assert trial["parameters"] == [
        {"parameterId": "lr", "value": 0.01},
        {"parameterId": "units", "value": 16},
        {"parameterId": "optimizer", "value": "sgd"},
    ]
    assert trial["finalMeasurement"] == {
        "elapsedDuration": "1.5s",
        "stepCount": "3",
        "metrics": [{"metricId": "accuracy", "value": 0.9}, {"metricId": "loss", "value": "NaN"}],
    }
    assert [each["stepCount"] for each in trial["measurements"]] == ["1", "3"]
    assert trial["customJob"] == f"{P}/customJobs/{job.pk}"
    assert trial["startTime"] == trial["endTime"]


def test_a_trial_that_runs_shows_what_it_has_measured(script, monkeypatch):
    made = created(script("bob"))
    job = Job.objects.get()
    curve = tuple(Measurement(step, {"accuracy": 0.1 * step}, 0.5) for step in range(5000))
    monkeypatch.setattr(measured, "of_jobs", lambda jobs, names: {job.pk: measured.Measured(curve)})
    found = script("bob").get(f"/v1/{made['name']}").json()["trials"][0]["measurements"]
    assert [found[0]["stepCount"], found[-1]["stepCount"]] == ["0", "4999"] and 90 < len(found) < 110
    [listed] = script("bob").get(TUNING).json()["hyperparameterTuningJobs"]
    assert "measurements" not in listed["trials"][0]


def test_many_trials_share_the_measurements_that_an_answer_may_have(script, monkeypatch):
    """Clients read all of it every five seconds. The final measurement of each trial is there."""
    made = created(script("bob"))
    monkeypatch.setattr(documents, "MOST_MEASUREMENTS", 30)
    curve = [{"step": step, "elapsed": 0.5, "metrics": {"accuracy": step}} for step in range(100)]
    Trial.objects.update(state="SUCCEEDED", ended_at=timezone.now(), final=curve[57], measurements=curve)
    with CaptureQueriesContext(connection) as few:
        [trial] = script("bob").get(f"/v1/{made['name']}").json()["trials"]
    assert 30 <= len(trial["measurements"]) <= 34
    assert "57" in [each["stepCount"] for each in trial["measurements"]]
    more_trials(40)
    with CaptureQueriesContext(connection) as many:
        trials = script("bob").get(f"/v1/{made['name']}").json()["trials"]
    assert len(trials) == 41 and len(many) == len(few)
    assert all(documents.FEWEST <= len(each["measurements"]) < 2 * documents.FEWEST for each in trials)


def more_trials(count):
    trial, job = Trial.objects.get(), Job.objects.get()
    for number in range(2, count + 2):
        job.pk, trial.pk, trial.number = job.pk + 1, None, number
        job.request_id = None
        job.save(force_insert=True)
        trial.job = job
        trial.save(force_insert=True)


def test_an_infeasible_trial_says_why(script):
    made = created(script("bob"))
    Trial.objects.update(state="INFEASIBLE", infeasible_reason="exit 7", parameters={"lr": 0.1})
    trial = script("bob").get(f"/v1/{made['name']}").json()["trials"][0]
    assert (trial["state"], trial["infeasibleReason"]) == ("INFEASIBLE", "exit 7")


def test_a_trial_that_hosts_failed_under_says_so(script):
    made = created(script("bob"))
    Trial.objects.update(state="INFEASIBLE", infeasible_reason="Hosts failed.", ending="HOSTS")
    trial = script("bob").get(f"/v1/{made['name']}").json()["trials"][0]
    assert trial["trainyard"] == {"ending": "HOSTS"}


def test_a_study_that_failed_has_its_error(script):
    made = created(script("bob"))
    now = timezone.now()
    TuningJob.every.update(state="FAILED", error_code=3, error_message="3 of 4", started_at=now, ended_at=now)
    found = script("bob").get(f"/v1/{made['name']}").json()
    assert found["error"] == {"code": 3, "message": "3 of 4"} and found["endTime"]


def test_lists_are_paged_newest_first_and_filtered(script):
    bob = script("bob")
    names = [created(bob, displayName=f"hp-{number}")["name"] for number in range(3)]
    first = bob.get(f"{TUNING}?pageSize=2").json()
    assert [each["name"] for each in first["hyperparameterTuningJobs"]] == names[:0:-1]
    rest = bob.get(f"{TUNING}?pageSize=2&pageToken={first['nextPageToken']}").json()
    assert [each["name"] for each in rest["hyperparameterTuningJobs"]] == names[:1]
    found = bob.get(f'{TUNING}?filter=display_name="hp-1" AND state="JOB_STATE_QUEUED"').json()
    assert [each["displayName"] for each in found["hyperparameterTuningJobs"]] == ["hp-1"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"maxTrialCount": 0}, "max_trial_count"),
        ({"parallelTrialCount": None}, "parallel_trial_count"),
        ({"studySpec": {**FROM_SDK["studySpec"], "metrics": []}}, "study_spec.metrics"),
        ({"trialJobSpec": None}, "trial_job_spec"),
        ({"trialJobSpec": {"workerPoolSpecs": []}}, "trial_job_spec.worker_pool_specs"),
    ],
)
def test_a_mistake_names_its_field(script, changes, field):
    answer = script("bob").post(TUNING, {**FROM_SDK, **changes}, content_type="application/json")
    assert answer.status_code == 400
    violations = answer.json()["error"]["details"][0]["fieldViolations"]
    assert field in [each["field"] for each in violations]
    assert not TuningJob.every.exists()


def test_it_is_cancelled_by_whoever_may(script):
    made = created(script("bob"))
    assert script("vera").post(f"/v1/{made['name']}:cancel").status_code == 403
    assert script("bob").post(f"/v1/{made['name']}:cancel").json() == {}
    assert TuningJob.objects.get().cancel_requested_by == "bob"


def test_it_is_deleted_when_it_is_over(script):
    bob, made = script("bob"), created(script("bob"))
    assert bob.delete(f"/v1/{made['name']}").status_code == 400
    TuningJob.every.update(state="SUCCEEDED", ended_at=timezone.now())
    operation = bob.delete(f"/v1/{made['name']}").json()
    assert operation["done"] and bob.get(f"/v1/{made['name']}").status_code == 404
    assert bob.get(f"/v1/{operation['name']}").json() == operation


def test_for_strangers_it_does_not_exist(script):
    made = created(script("bob"))
    for address in (TUNING, f"/v1/{made['name']}"):
        assert script("charlie").get(address).status_code == 404
    assert script("vera").post(TUNING, FROM_SDK, content_type="application/json").status_code == 403


def test_the_canonical_document_is_taken_again(script):
    """What the service says is what it takes: a study can be submitted again from its own answer."""
    bob, first = script("bob"), created(script("bob"))
    again = created(bob, studySpec=first["studySpec"], trialJobSpec=first["trialJobSpec"])
    assert again["studySpec"] == first["studySpec"] and again["trialJobSpec"] == first["trialJobSpec"]
    assert created(bob, **asked())["studySpec"]["algorithm"] == "RANDOM_SEARCH"


def test_a_command_that_loses_the_parameters_is_warned_of(script):
    pools = [
        {
            "machineSpec": {},
            "replicaCount": "1",
            "containerSpec": {"imageUri": "host", "command": ["sh", "-c", "x"]},
        }
    ]
    document = {**FROM_SDK, "trialJobSpec": {"workerPoolSpecs": pools}}
    answer = script("bob").post(TUNING, document, content_type="application/json")
    assert "do not reach the program of workerpool0" in answer.headers["Warning"]
    assert "Warning" not in script("bob").post(TUNING, FROM_SDK, content_type="application/json").headers


def test_what_is_kept_without_effect_is_told(script):
    document = asked()
    document["studySpec"]["metrics"].append(
        {"metricId": "ram", "safetyConfig": {"safetyThreshold": 8, "desiredMinSafeTrialsFraction": 0.9}}
    )
    document["studySpec"]["convexAutomatedStoppingSpec"] = {
        "learningRateParameterName": "lr",
        "updateAllStoppedTrials": True,
    }
    document["trialJobSpec"]["network"] = "a"
    told = script("bob").post(TUNING, document, content_type="application/json").headers["Warning"]
    for field in (
        "studySpec.metrics[1].safetyConfig.desiredMinSafeTrialsFraction (0.9)",
        "studySpec.convexAutomatedStoppingSpec.learningRateParameterName (lr)",
        "studySpec.convexAutomatedStoppingSpec.updateAllStoppedTrials (true)",
        "trialJobSpec.network (a)",
    ):
        assert field in told


def test_a_study_that_no_release_would_take_today_is_still_readable(script):
    made = created(script("bob"))
    Trial.objects.update(state="ACTIVE", parameters={"units": 8, "lr": 0.01, "optimizer": "sgd"})
    TuningJob.objects.update(study={**made["studySpec"], "algorithm": "OF_LONG_AGO"})
    [seen] = script("vera").get(TUNING).json()["hyperparameterTuningJobs"]
    assert seen["studySpec"]["algorithm"] == "OF_LONG_AGO"
    names = [each["parameterId"] for each in seen["trials"][0]["parameters"]]
    assert sorted(names) == ["lr", "optimizer", "units"]


def test_of_trials_that_are_over_nothing_of_their_jobs_is_read(script):
    """A list of studies may have a hundred thousand trials, and the document of each job is some kilobytes."""
    bob = script("bob")
    created(bob)
    more_trials(5)
    Trial.objects.update(ended_at=timezone.now(), state="SUCCEEDED", parameters={"lr": 0.1})
    with CaptureQueriesContext(connection) as queries:
        [found] = bob.get(TUNING).json()["hyperparameterTuningJobs"]
    assert len(found["trials"]) == Trial.objects.count()
    jobs = {f"{P}/customJobs/{pk}" for pk in Job.objects.values_list("pk", flat=True)}
    assert {each["customJob"] for each in found["trials"]} == jobs
    assert not [each["sql"] for each in queries if '"jobs_job"."spec"' in each["sql"]]
