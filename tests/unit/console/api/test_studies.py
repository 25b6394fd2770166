"""Studies as our own REST shows them, and their extension."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from jobs.models import Trial, TuningJob, Usage
from jobs.rules.scheduling.resource_requests import encode_request
from jobs.rules.spec.parse import parse_spec
from tests.unit.console.api.test_tuning_jobs import FROM_SDK, TUNING, created
from tests.unit.console.views.example_rows import a_host, a_job, a_machine_type

pytestmark = pytest.mark.django_db


def over(script):
    """A study of two trials, one of which has ended, and the study with it."""
    made = created(script("bob"), maxTrialCount=1)
    now = timezone.now()
    final = {"step": 3, "elapsed": 1.5, "metrics": {"accuracy": 0.9}}
    Trial.objects.update(
        state="SUCCEEDED", parameters={"lr": 0.01}, final=final, started_at=now, ended_at=now
    )
    TuningJob.objects.update(state="SUCCEEDED", outcome="SUCCEEDED", started_at=now, ended_at=now)
    return made, f"/api/v1/studies/{TuningJob.objects.get().pk}"


def test_a_study_is_extended(script):
    made, url = over(script)
    answer = script("bob").post(
        f"{url}:extend", {"maxTrialCount": "7", "parallelTrialCount": 3}, content_type="application/json"
    )
    assert answer.status_code == 200, answer.content
    found = answer.json()
    assert (found["name"], found["state"]) == (made["name"], "RUNNING")
    assert (found["maxTrialCount"], found["parallelTrialCount"]) == (7, 3) and found["extendTime"]
    assert script("vera").get(url).json() == found
    resource = script("bob").get(f"/v1/{made['name']}").json()
    assert (resource["state"], resource["maxTrialCount"]) == ("JOB_STATE_RUNNING", 7)
    assert "endTime" not in resource


def test_a_refused_extension_names_its_field(script):
    _, url = over(script)
    for body, field in (
        ({"maxTrialCount": 1}, "max_trial_count"),
        ({"parallelTrialCount": 0}, "parallel_trial_count"),
        ({"trials": 7}, "trials"),
        ([], ""),
    ):
        answer = script("bob").post(f"{url}:extend", body, content_type="application/json")
        assert answer.status_code == 400, answer.content
        details = answer.json()["error"].get("details", [])
        fields = [each["field"] for one in details for each in one.get("fieldViolations", ())]
        assert fields == [field] or not field
    TuningJob.objects.update(state="RUNNING", cancel_requested_at=timezone.now())
    answer = script("bob").post(f"{url}:extend", {"maxTrialCount": 9}, content_type="application/json")
    assert answer.status_code == 400 and "about to end" in answer.json()["error"]["message"]


def test_a_study_learns_from_an_earlier_one(script):
    _, url = over(script)
    Trial.objects.update(parameters={"lr": 0.01, "units": 8, "optimizer": "sgd"})
    earlier = script("bob").get(url).json()
    spec = {**FROM_SDK["studySpec"], "transferLearningConfig": {"priorStudyNames": [earlier["name"]]}}
    made = created(script("bob"), studySpec=spec)
    assert made["studySpec"]["transferLearningConfig"] == {"priorStudyNames": [earlier["name"]]}
    number = made["name"].rpartition("/")[2]
    [prior] = script("vera").get(f"/api/v1/studies/{number}").json()["priorStudies"]
    assert prior == {"id": earlier["id"], "displayName": "hp", "trialCount": 1}
    spec["transferLearningConfig"] = {"priorStudyNames": ["7"]}
    answer = script("bob").post(TUNING, {**FROM_SDK, "studySpec": spec}, content_type="application/json")
    assert answer.status_code == 400 and "prior_study_names[0]" in answer.content.decode()


def test_the_price_of_a_study_before_it_is_submitted(script, cast, project):
    a_host(gpus=1)
    pool = {**FROM_SDK["trialJobSpec"]["workerPoolSpecs"][0], "replicaCount": "1"}
    machine = {"machineType": "n1-standard-4", "acceleratorType": "NVIDIA_TESLA_T4", "acceleratorCount": 2}
    spec = {"workerPoolSpecs": [{**pool, "machineSpec": machine}], "scheduling": {"timeout": "7200s"}}
    asked = {"project": "default", "hyperparameterTuningJob": {**FROM_SDK, "trialJobSpec": spec}}

    def priced():
        answer = script("bob").post("/api/v1/studies:price", asked, content_type="application/json")
        assert answer.status_code == 200, answer.content
        return answer.json()

    found = priced()
    assert (found["trialCount"], found["gpusPerTrial"], found["mostGpuHours"]) == (4, 2, 16.0)
    assert "usualGpuHours" not in found and "not known yet" in found["text"]
    assert not TuningJob.objects.exists()
    request = encode_request(parse_spec(spec))
    for number in range(3):
        now = timezone.now()
        times = {"started_at": now - timedelta(minutes=30), "ended_at": now}
        a_job(
            project, cast.bob, state="SUCCEEDED", name=f"before-{number}", resource_request=request, **times
        )
    assert priced()["usualGpuHours"] == pytest.approx(4.0)
    bad = {**asked, "hyperparameterTuningJob": {}}
    answer = script("bob").post("/api/v1/studies:price", bad, content_type="application/json")
    assert answer.status_code == 400 and "max_trial_count" in answer.content.decode()


def test_what_a_study_cost_and_what_rules_would_have_saved(script, cast, project):
    _, url = over(script)
    why = {"value": 0.8, "low": 0.7, "high": 0.9, "chance": 0.25}
    outlook = [{"trials": 5, "now": 0.9, "value": 0.95, "low": 0.9, "high": 0.97}]
    Trial.objects.update(shadow={"convex_automated_stopping_spec": 0.0}, why=why)
    TuningJob.objects.update(outlook=outlook)
    run = a_job(project, cast.bob, state="SUCCEEDED", host=a_host(gpus=2)).runs.get()
    now = timezone.now()
    Usage.objects.filter(run=run).delete()
    Usage.objects.create(
        run=run,
        job=Trial.objects.get().job,
        project=project,
        owner_name="bob",
        gpus=2,
        cpus=1,
        began_at=now - timedelta(minutes=90),
        ended_at=now,
    )
    found = script("vera").get(url).json()
    assert found["gpuHours"] == pytest.approx(3.0)
    [trial] = found["trials"]
    assert trial["gpuHours"] == pytest.approx(3.0) and trial["expected"] == why
    assert trial["wouldStop"] == {"convex_automated_stopping_spec": 0.0}
    by_rule = {each["rule"]: each for each in found["shadow"]}
    assert by_rule["convex_automated_stopping_spec"]["stoppedTrialCount"] == 1
    assert not by_rule["convex_automated_stopping_spec"]["keepsBest"]
    assert by_rule["median_automated_stopping_spec"]["text"] == "median would have stopped no trial"
    [next_] = found["outlook"]
    assert next_["value"] == 0.95 and next_["text"].startswith(
        "The model expects 5 more trials to bring accuracy"
    )


def test_strangers_find_no_study(script):
    _, url = over(script)
    assert script("charlie").get(url).status_code == 404
    assert script("vera").post(f"{url}:extend", {}, content_type="application/json").status_code == 403


@pytest.mark.parametrize("change", ["removed", "changed"])
def test_a_study_is_shown_and_extended_when_its_machine_type_is_another_one(script, browser, change):
    a_host(gpus=2, cpus=64)
    kind = a_machine_type(cpus=8, memory_mb=32_768)
    pool = {**FROM_SDK["trialJobSpec"]["workerPoolSpecs"][0], "replicaCount": "1"}
    pool["machineSpec"] = {"machineType": "lab-8", "acceleratorType": "NVIDIA_L4", "acceleratorCount": 2}
    spec = {"workerPoolSpecs": [pool], "scheduling": {"timeout": "7200s"}}
    made = created(script("bob"), maxTrialCount=3, trialJobSpec=spec)
    number = made["name"].rpartition("/")[2]
    if change == "removed":
        kind.delete()
    else:
        type(kind).objects.update(accelerator_count=4)
    found = script("bob").get(f"/api/v1/studies/{number}")
    assert found.status_code == 200, found.content
    price = found.json()["price"]
    assert (price["gpusPerTrial"], price["trialCount"], price["mostGpuHours"]) == (2, 3, 12.0)
    answer = script("bob").post(
        f"/api/v1/studies/{number}:extend", {"maxTrialCount": 5}, content_type="application/json"
    )
    assert answer.status_code == 200 and answer.json()["price"]["mostGpuHours"] == 20.0
    assert browser("bob").get(f"/studies/{number}/").status_code == 200
