"""A study over real hosts is the same, whatever is killed: the same trials, with the same parameters."""

from __future__ import annotations

import pytest

from tests.harness.product import job_spec
from tests.harness.wait_and_processes import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.needs_namespaces]

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
PARALLEL = 3
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
    """One trial after the other, so that nothing but the seed and the rows decides what comes next. `parallel`: or
    several at once; `search` then says by which algorithm."""

    command = ("python3", "-c", PROGRAM)
    trials = TRIALS

    def __init__(self, yard, parallel=1, **search):
        self.yard = yard
        self.document = document = {
            "displayName": "study",
            "studySpec": {
                "metrics": [{"metricId": "loss", "goal": "MINIMIZE"}],
                "parameters": [{"parameterId": "x", "doubleValueSpec": {"minValue": 0.0, "maxValue": 1.0}}],
                **search,
            },
            "maxTrialCount": self.trials,
            "parallelTrialCount": parallel,
            "trialJobSpec": self.job_of_trials()["jobSpec"],
        }
        url = yard.client.jobs_url.replace("customJobs", "hyperparameterTuningJobs")
        # All of them sweep, so all of them draw.
        stopped = [pid for role in ("worker", "dispatcher") for pid in yard.processes.pause(role)]
        stopped += [pid for _, pid in yard.extras]
        for _, pid in yard.extras:
            yard.processes.pause_one(pid)
        try:
            name = yard.client.call("POST", url, 60, json=document).json()["name"]
            self.id = name.rpartition("/")[2]
            yard.execute(f"UPDATE jobs_tuningjob SET seed = {SEED} WHERE id = {self.id}")  # noqa: S608
        finally:
            yard.processes.resume(*stopped)
        self.url = f"{yard.url}/v1/{name}"

    def job_of_trials(self):
        return job_spec(list(self.command))

    def ended(self):
        self.yard.replace_dead_extras()
        found = self.yard.client.call("GET", self.url, 60).json()
        return found if found["state"] in OVER else None

    def drawn(self):
        """The parameters of the trials that have some, by number."""
        rows = self.yard.query(
            f"SELECT number, parameters FROM jobs_trial WHERE tuning_job_id = {self.id}"  # noqa: S608
        )
        return {row["number"]: str(row["parameters"]) for row in rows if row["parameters"]}

    def over_without_another_draw(self, killed=()):
        """The same as `over`, where parameters that were seen once never change. `killed`: roles of processes, one of
        which is killed whenever another trial has been drawn."""
        seen, left = {}, list(killed)

        def ended():
            found = self.drawn()
            assert seen.items() <= found.items(), (seen, found)
            if left and len(found) > len(seen):
                self.yard.processes.kill(left.pop())
            seen.update(found)
            return self.ended()

        wait_for(ended, "the study to end", timeout=400, dump=self.yard.tail)
        assert len(seen) == TRIALS and not left
        return self.over()

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


@pytest.mark.parametrize(
    ("algorithm", "points", "roles"),
    [("RANDOM_SEARCH", POINTS, ()), ("ALGORITHM_UNSPECIFIED", (), ("web", "worker", "dispatcher", "beat"))],
)
def test_trials_that_run_at_once_are_drawn_and_run_once_whatever_is_killed(yard, algorithm, points, roles):
    """Which trials have ended when the next one is drawn depends on time. So the model's parameters may be others in
    another run; those of a random search follow from the seed and the number alone."""
    yard.settle()
    study = Study(yard, PARALLEL, algorithm=algorithm)
    for point in points:
        yard.arm(point, "kill")
    try:
        found = study.over_without_another_draw(roles)
        assert not yard.armed()
    finally:
        yard.disarm()
    assert {trial for trial, *_ in found} == {str(number) for number in range(1, TRIALS + 1)}
    # What each measured is what its own parameters give, at the last step: no trial has the reports of another.
    for _, state, [parameter], [metric] in found:
        assert state == "SUCCEEDED"
        assert metric["value"] == pytest.approx((parameter["value"] - 0.3) ** 2 + 1 / 2)
    # A run that was started twice, or a report that was lost, would show here.
    yard.check("after a study of which several trials ran at once")
    if algorithm == "RANDOM_SEARCH":
        assert [each[:3] for each in Study(yard, PARALLEL, algorithm=algorithm).over()] == [
            each[:3] for each in found
        ]
