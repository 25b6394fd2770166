"""A study over real hosts is the same, whatever is killed: the same trials, with the same parameters."""

from __future__ import annotations

import pytest

from tests.harness.product import job_spec
from tests.harness.wait_and_processes import wait_for

pytestmark = pytest.mark.needs_namespaces

# A smooth loss, reported in the file that every program has.
PROGRAM = """import json, os, sys, time
x = float(sys.argv[-1].partition("=")[2])
with open(os.environ["TRAINYARD_METRICS"], "a") as file:
    for step in (1, 2):
        file.write(json.dumps({"step": step, "loss": (x - 0.3) ** 2 + 1 / step}) + "\\n")
time.sleep(0.2)
"""
# After the first five the search learns from what came before, so a lost or doubled measurement would show.
TRIALS = 8
SEED = 4711
# In every process that works on a study, at what it does for it.
POINTS = (
    "tuning.drawn",
    "tuning.before",
    "tuning.after",
    "schedule.before",
    "schedule.after",
    "advance.after",
    "take.before",
    "send.metrics_pull.after",
    "receive.metrics",
    "receive.metrics_end",
)
OVER = ("JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED")


@pytest.fixture(scope="module")
def shape():
    return "apart"


class Study:
    """One trial after the other, so that nothing but the seed and the rows decides what comes next."""

    def __init__(self, yard):
        self.yard = yard
        document = {
            "displayName": "study",
            "studySpec": {
                "metrics": [{"metricId": "loss", "goal": "MINIMIZE"}],
                "parameters": [{"parameterId": "x", "doubleValueSpec": {"minValue": 0.0, "maxValue": 1.0}}],
            },
            "maxTrialCount": TRIALS,
            "parallelTrialCount": 1,
            "trialJobSpec": job_spec(["python3", "-c", PROGRAM])["jobSpec"],
        }
        url = yard.client.jobs_url.replace("customJobs", "hyperparameterTuningJobs")
        # All of them sweep, so all of them draw.
        stopped = [pid for role in ("worker", "dispatcher") for pid in yard.processes.pause(role)]
        stopped += [pid for _, pid in yard.extras]
        for _, pid in yard.extras:
            yard.processes.pause_one(pid)
        try:
            name = yard.client.call("POST", url, 60, json=document).json()["name"]
            yard.execute(f"UPDATE jobs_tuningjob SET seed = {SEED} WHERE id = {name.rpartition('/')[2]}")  # noqa: S608
        finally:
            yard.processes.resume(*stopped)
        self.url = f"{yard.url}/v1/{name}"

    def ended(self):
        self.yard.replace_dead_extras()
        found = self.yard.client.call("GET", self.url, 60).json()
        return found if found["state"] in OVER else None

    def over(self):
        found = wait_for(self.ended, "the study to end", timeout=400, dump=self.yard.tail)
        assert found["state"] == "JOB_STATE_SUCCEEDED", found.get("error")
        return [
            (trial["id"], trial["state"], trial["parameters"], trial["finalMeasurement"]["metrics"])
            for trial in found["trials"]
        ]


def test_a_study_is_the_same_whatever_is_killed(yard):
    yard.settle()
    undisturbed = Study(yard).over()
    assert len({str(parameters) for _, _, parameters, _ in undisturbed}) == TRIALS
    disturbed = Study(yard)
    for point in POINTS:
        yard.arm(point, "kill")
    try:
        assert disturbed.over() == undisturbed
        assert not yard.armed()
    finally:
        yard.disarm()
    yard.check("after a study whose processes were killed")
