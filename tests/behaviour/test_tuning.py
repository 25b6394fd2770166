"""A tuning job whose trials are a cluster each: what every replica of every trial finds."""

from __future__ import annotations

import contextlib
import json
import re
from urllib.parse import quote

import pytest

from tests.harness.product import job_spec
from tests.harness.wait_and_processes import wait_for

# Prints what it finds. The loss stands in its log alone. The job ends with its primary, which waits until the others
# have printed: each of them then answers at its own address.
MEMBER = """import json, os, socket, sys, time
print("environment", json.dumps(dict(os.environ)))
print("argv", json.dumps(sys.argv[1:]))
print("step=1 loss=%s" % sys.argv[-1].partition("=")[2], flush=True)
spec = json.loads(os.environ["CLUSTER_SPEC"])
cluster, task = spec["cluster"], spec["task"]
if task["type"] != "workerpool0":
    socket.create_server(("", int(cluster[task["type"]][task["index"]].rpartition(":")[2]))).accept()
for address in sum(list(cluster.values())[1:], []) if task["type"] == "workerpool0" else ():
    host, _, port = address.rpartition(":")
    while True:
        try:
            socket.create_connection((host, int(port))).close()
            break
        except OSError:
            time.sleep(0.05)
"""
POOLS = ("workerpool0-0", "workerpool1-0", "workerpool1-1", "workerpool2-0")
STUDY = {
    "metrics": [{"metricId": "loss", "goal": "MINIMIZE"}],
    "parameters": [
        {"parameterId": "layers", "integerValueSpec": {"minValue": "1", "maxValue": "9"}},
        {"parameterId": "rate", "doubleValueSpec": {"minValue": -1.0, "maxValue": 1.0}},
    ],
}
CUSTOM_TASK = "gs://google-cloud-aiplatform/schema/trainingjob/definition/custom_task_1.0.0.yaml"
OVER = ("JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED")


class Study:
    """Two trials, one after the other, of a job with these pools."""

    def __init__(self, yard, *pools, base=""):
        self.client = yard.client
        spec = job_spec(*pools)["jobSpec"]
        if base:
            spec["baseOutputDirectory"] = {"outputUriPrefix": base}
        document = {
            "displayName": "study",
            "studySpec": STUDY,
            "maxTrialCount": 2,
            "parallelTrialCount": 1,
            "trialJobSpec": spec,
        }
        url = self.client.jobs_url.replace("customJobs", "hyperparameterTuningJobs")
        self.created = self.client.call("POST", url, json=document).json()
        self.url = f"{yard.url}/v1/{self.created['name']}"
        self.found = wait_for(self.ended, "the study to end", timeout=240, dump=yard.tail)
        self.trials = {trial["id"]: trial for trial in self.found["trials"]}

    def ended(self):
        found = self.client.call("GET", self.url).json()
        return found if found["state"] in OVER else None

    def printed(self, trial, replica, what):
        log = self.client.log(int(self.trials[trial]["customJob"].rpartition("/")[2]), replica).decode()
        return json.loads(next(line for line in log.splitlines() if line.startswith(what)).partition(" ")[2])

    def environments(self):
        for trial in self.trials:
            for replica in POOLS:
                yield trial, replica, self.printed(trial, replica, "environment")

    def parameters(self, trial):
        return {each["parameterId"]: each["value"] for each in self.trials[trial]["parameters"]}


@pytest.fixture(scope="module")
def study(yard):
    """Each trial is a chief, two workers and a parameter server."""
    command = ["python3", "-c", MEMBER]
    one, two = {"command": command, "machine": "custom-1-256"}, {"command": command, "replicas": 2}
    return Study(yard, one, two, one, base=f"{yard.fleet[0].home}/out-study")


def test_S0_02_a_tuning_job_is_queued_at_first(study):
    assert study.created["state"] == "JOB_STATE_QUEUED"
    assert study.found["state"] == "JOB_STATE_SUCCEEDED", study.found.get("error")


def test_S4_12_every_trial_is_a_whole_cluster(study):
    clusters = {trial: set() for trial in study.trials}
    for trial, _, environment in study.environments():
        cluster = json.loads(environment["CLUSTER_SPEC"])["cluster"]
        assert {pool: len(members) for pool, members in cluster.items()} == {
            "workerpool0": 1,
            "workerpool1": 2,
            "workerpool2": 1,
        }
        clusters[trial].add(json.dumps(cluster, sort_keys=True))
    assert all(len(found) == 1 for found in clusters.values())


def test_S4_48_S4_60_S4_71_each_replica_can_read_which_trial_it_is(study):
    for trial, _, environment in study.environments():
        for variable in ("CLUSTER_SPEC", "TF_CONFIG"):
            assert json.loads(environment[variable])["task"]["trial"] == trial
        assert environment["CLOUD_ML_TRIAL_ID"] == trial
    assert sorted(study.trials) == ["1", "2"]


def test_S4_63_the_example_of_a_worker_in_trial_1_is_whole(study, yard):
    """TF_CONFIG and CLUSTER_SPEC of the first worker are what the documents show, and nothing else: their names of
    hosts stand for the replicas, which each answer at an address of their own."""
    job = int(study.trials["1"]["customJob"].rpartition("/")[2])
    rows = yard.query(f"SELECT id, port, host_id FROM jobs_run WHERE job_id = {job}")  # noqa: S608
    hosts = {row["id"]: row["address"] for row in yard.query("SELECT id, address FROM agents_host")}
    name = {f"{hosts[row['host_id']]}:{row['port']}": replica_of(row["id"]) for row in rows}
    assert len(name) == 4
    found = {
        variable: json.loads(study.printed("1", "workerpool1-0", "environment")[variable])
        for variable in ("TF_CONFIG", "CLUSTER_SPEC")
    }
    for each in found.values():
        each["cluster"] = {task: [name[at] for at in members] for task, members in each["cluster"].items()}
    document = study.client.job(job)["jobSpec"]
    workers = ["workerpool1-0", "workerpool1-1"]
    assert found["TF_CONFIG"] == {
        "cluster": {"chief": ["workerpool0-0"], "worker": workers, "ps": ["workerpool2-0"]},
        "environment": "cloud",
        "task": {"type": "worker", "index": 0, "trial": "1", "cloud": str(job)},
        "job": document,
    }
    assert found["CLUSTER_SPEC"] == {
        "cluster": {
            "workerpool0": ["workerpool0-0"],
            "workerpool1": workers,
            "workerpool2": ["workerpool2-0"],
        },
        "environment": "cloud",
        "task": {"type": "workerpool1", "index": 0, "trial": "1"},
        "job": document,
    }


def replica_of(run):
    """`7-workerpool1-0-a1-r0`"""
    return run.partition("-")[2].rsplit("-", 2)[0]


def test_S4_12_a_pipeline_with_two_pools_is_a_whole_cluster(yard):
    """One primary and two workers, which meet each other, as the job of a custom training pipeline."""
    command = ["python3", "-c", MEMBER, "--rate=1"]
    pools = job_spec({"command": command}, {"command": command, "replicas": 2})["jobSpec"]["workerPoolSpecs"]
    document = {
        "displayName": "two pools",
        "trainingTaskDefinition": CUSTOM_TASK,
        "trainingTaskInputs": {"workerPoolSpecs": pools},
    }
    url = yard.client.jobs_url.replace("customJobs", "trainingPipelines")
    name = yard.client.call("POST", url, json=document).json()["name"]

    def ended():
        found = yard.client.call("GET", f"{yard.url}/v1/{name}").json()
        return found if found["state"].endswith(("SUCCEEDED", "FAILED", "CANCELLED")) else None

    found = wait_for(ended, "the pipeline to end", timeout=240, dump=yard.tail)
    assert found["state"] == "PIPELINE_STATE_SUCCEEDED", found.get("error")
    job = int(found["trainingTaskMetadata"]["backingCustomJob"].rpartition("/")[2])
    seen = {}
    for replica in ("workerpool0-0", "workerpool1-0", "workerpool1-1"):
        log = yard.client.log(job, replica).decode()
        line = next(line for line in log.splitlines() if line.startswith("environment"))
        environment = json.loads(line.partition(" ")[2])
        seen[replica] = json.loads(environment["TF_CONFIG"])
        assert (environment["WORLD_SIZE"], environment["CLOUD_ML_JOB_ID"]) == ("3", str(job))
    assert [(each["task"]["type"], each["task"]["index"]) for each in seen.values()] == [
        ("chief", 0), ("worker", 0), ("worker", 1),
    ]  # fmt: skip
    assert "trial" not in seen["workerpool0-0"]["task"]
    clusters = {json.dumps(each["cluster"], sort_keys=True) for each in seen.values()}
    assert len(clusters) == 1 and {name: len(at) for name, at in json.loads(clusters.pop()).items()} == {
        "chief": 1,
        "worker": 2,
    }


def test_S4_68_each_trial_has_arguments_of_its_own_which_are_its_parameters(study):
    given = {trial: study.parameters(trial) for trial in study.trials}
    assert given["1"] != given["2"]
    for trial, _, _ in study.environments():
        layers, rate = given[trial]["layers"], given[trial]["rate"]
        for replica in POOLS:
            assert study.printed(trial, replica, "argv") == [f"--layers={layers}", f"--rate={rate!r}"]


def test_S4_69_the_program_need_not_know_that_it_is_a_trial(study):
    """It only printed its loss."""
    for trial, found in study.trials.items():
        assert found["state"] == "SUCCEEDED"
        assert found["finalMeasurement"]["metrics"] == [
            {"metricId": "loss", "value": study.parameters(trial)["rate"]}
        ]


# Reports once, and once more when it is told to go on.
TOLD = """import os, sys, time
print("step=1 loss=2", flush=True)
while not os.path.exists("/tmp/trial-may-go"):
    time.sleep(0.05)
print("step=2 loss=%s" % sys.argv[-1].partition("=")[2], flush=True)
"""


class LivePage:
    """An open page: `shown` is the newest of each part that its socket sent."""

    def __init__(self, client, path):
        self.socket = client.socket(f"/ws/live?at={quote(path, safe='')}")
        self.shown = {}

    def until(self, condition, what):
        def is_so():
            with contextlib.suppress(TimeoutError):
                self._take(self.socket.recv(timeout=0.2))
            return condition(" ".join(self.shown.values()))

        return wait_for(
            is_so, f"an open page to show {what}", timeout=120, dump=lambda: str(self.shown)[-6000:]
        )

    def _take(self, message):
        part = re.search(r'id="([^"]+)"', message) if isinstance(message, str) else None
        if part:
            self.shown[part[1]] = message


def states(page):
    """The states of the trials, as the table of the study shows them."""
    rows = re.findall(r'<tr id="trial-(\d+)".*?data-state="(\w+)"', page, re.DOTALL)
    return dict(rows)


def test_S4_70_the_page_of_a_study_follows_its_trials_without_being_loaded_again(yard):
    """Their states, what they have reported while they run, their results, and the end of the study."""
    client = yard.client
    url = client.jobs_url.replace("customJobs", "hyperparameterTuningJobs")
    trial = job_spec(["python3", "-c", TOLD])["jobSpec"]
    document = {
        "displayName": "watched",
        "studySpec": STUDY,
        "maxTrialCount": 2,
        "parallelTrialCount": 2,
        "trialJobSpec": trial,
    }
    name = client.call("POST", url, json=document).json()["name"]
    path = f"/studies/{name.rpartition('/')[2]}/"
    page, curves = LivePage(client, path), LivePage(client, f"{path}curves")
    page.until(lambda text: states(text) == {"1": "ACTIVE", "2": "ACTIVE"}, "both trials running")
    curves.until(
        lambda text: "loss of 2 trials over their steps, 2 of them running" in text, "the curves of both"
    )
    assert "SUCCEEDED" not in str(page.shown)
    for host in yard.fleet:
        host.path("/tmp/trial-may-go").touch()
    page.until(lambda text: states(text) == {"1": "SUCCEEDED", "2": "SUCCEEDED"}, "both trials over")
    ended = r'id="study-head".*?data-state="SUCCEEDED"'
    page.until(lambda text: "2 of 2 trials" in text and re.search(ended, text, re.DOTALL), "the end")
    curves.until(lambda text: "2 trials over their steps, 0 of them running" in text, "curves that are over")
    page.until(lambda text: "loss: 2 results" in text, "both results")
    trials = client.call("GET", f"{yard.url}/v1/{name}").json()["trials"]
    losses = {each["id"]: each["finalMeasurement"]["metrics"][0]["value"] for each in trials}
    value, best = re.search(r"the best is (\S+) of trial (\d+)\.", " ".join(page.shown.values())).groups()
    assert best == min(losses, key=losses.get)
    assert float(value.replace("−", "-")) == pytest.approx(losses[best], rel=1e-2)
    for each in (page, curves):
        each.socket.close()


def test_each_trial_has_an_output_directory_of_its_own(study):
    for trial, _, environment in study.environments():
        assert environment["AIP_MODEL_DIR"].endswith(f"/out-study/{trial}/model/")


def test_files_of_TensorBoard_are_read_also_without_an_output_directory(yard):
    """Of trials, and of a job that is none: the program finds a directory in the variable."""
    study = Study(yard, ["event-writer"])
    assert study.found["state"] == "JOB_STATE_SUCCEEDED", study.found.get("error")
    for trial, found in study.trials.items():
        [metric] = found["finalMeasurement"]["metrics"]
        assert found["finalMeasurement"]["stepCount"] == "3"
        assert abs(metric["value"] - study.parameters(trial)["rate"] - 1 / 8) < 1e-6
    job = yard.submit(job_spec(["event-writer"]))
    yard.client.wait(job, "SUCCEEDED")

    def series():
        url = f"{yard.url}/api/v1/jobs/{job}/reports"
        found = yard.client.call("GET", url).json()
        return found["series"] if found["complete"] else None

    [loss] = wait_for(series, "all that the job reported", dump=yard.tail)
    assert (loss["source"], loss["name"]) == ("tensorboard", "loss")
    assert [point["value"] for point in loss["points"]] == [1.0, 0.75, 0.625]
