"""Studies as our own REST shows them, and their extension."""

from __future__ import annotations

import pytest
from django.utils import timezone

from jobs.models import Trial, TuningJob
from tests.unit.console.api.test_tuning_jobs import FROM_SDK, TUNING, created

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


def test_strangers_find_no_study(script):
    _, url = over(script)
    assert script("charlie").get(url).status_code == 404
    assert script("vera").post(f"{url}:extend", {}, content_type="application/json").status_code == 403
