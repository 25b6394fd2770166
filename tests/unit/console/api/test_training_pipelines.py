"""Training pipelines as scripts use them: the backing job, the model that is left, refusals."""

from __future__ import annotations

import copy
from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from agents.models import Location
from jobs.artifacts import objects
from jobs.models import (
    Bucket,
    HostOutputs,
    Job,
    LocationStorage,
    ModelVersion,
    OutputFile,
    RegisteredModel,
    TrainingPipeline,
    Trial,
    TuningJob,
)
from jobs.pipelines import registry
from jobs.rules.spec.pipeline import CUSTOM, TUNING
from tests.unit.console.api.conftest import JOBS
from tests.unit.console.views.example_rows import a_host, a_job, one_line

pytestmark = pytest.mark.django_db

P = "projects/default/locations/us-central1"
PIPELINES, MODELS = f"/v1/{P}/trainingPipelines", f"/v1/{P}/models"
# As Google's SDK sends it: both styles of names, doubles, nulls.
ASKED = {
    "displayName": "tp1",
    "trainingTaskDefinition": CUSTOM,
    "trainingTaskInputs": {
        "worker_pool_specs": [
            {
                "containerSpec": {"imageUri": "host", "command": ["python3"], "args": ["train.py"]},
                "machine_spec": {"machine_type": "n1-standard-4"},
                "disk_spec": {"boot_disk_type": "pd-ssd", "boot_disk_size_gb": 100.0},
                "replica_count": 1.0,
            }
        ],
        "scheduling": {"timeout": "100s", "restart_job_on_worker_restart": True, "strategy": None},
        "enable_web_access": True,
        "base_output_directory": {"output_uri_prefix": "gs://staging/out"},
    },
    "labels": {"team": "vision"},
}
MODEL = {"displayName": "classifier", "versionAliases": ["default"], "containerSpec": {"imageUri": "serve:1"}}


def end_job(job, state):
    now = timezone.now()
    error = {"error_code": 3, "error_message": "exit 1"} if state == "FAILED" else {}
    Job.objects.filter(pk=job.pk).update(state=state, started_at=now, ended_at=now, **error)


def leave_a_model(name="out/model/weights"):
    """What the jobs of the pipelines wrote, as it is stored."""
    bucket = Bucket.objects.get(name="staging")
    objects.put_object(bucket.project, bucket.name, name, [b"weights"])


def asked(**changes):
    document = {**copy.deepcopy(ASKED), **changes}
    return {name: value for name, value in document.items() if value is not ...}


def created(client, **changes):
    answer = client.post(PIPELINES, asked(**changes), content_type="application/json")
    assert answer.status_code == 200, answer.content
    return answer.json()


def succeed(pipeline):
    job = TrainingPipeline.objects.get(pk=pipeline["name"].rpartition("/")[2]).job
    end_job(job, "SUCCEEDED")
    leave_a_model()
    registry.record_models(timezone.now())


def test_a_pipeline_submits_its_job_and_shows_what_was_sent(script):
    bob = script("bob")
    made = created(bob)
    job = Job.objects.get()
    assert (job.display_name, job.labels, job.timeout_s) == ("tp1-custom-job", {"team": "vision"}, 100.0)
    assert job.spec["workerPoolSpecs"][0]["containerSpec"]["command"] == ["python3"]
    assert made["trainingTaskInputs"] == ASKED["trainingTaskInputs"]
    assert made["trainingTaskDefinition"] == CUSTOM and made["state"] == "PIPELINE_STATE_QUEUED"
    assert made["trainingTaskMetadata"] == {"backingCustomJob": f"{P}/customJobs/{job.pk}"}
    assert script("vera").get(f"/v1/{made['name']}").json() == made
    assert bob.get(f"{JOBS}/{job.pk}").json()["displayName"] == "tp1-custom-job"
    masked = bob.get(f"/v1/{made['name']}?readMask=name,displayName").json()
    assert masked == {"name": made["name"], "displayName": "tp1"}


def test_a_pipeline_follows_its_job(script):
    bob = script("bob")
    name = created(bob)["name"]
    assert bob.delete(f"/v1/{name}").status_code == 400
    assert bob.post(f"/v1/{name}:cancel", {}, content_type="application/json").json() == {}
    seen = bob.get(f"/v1/{name}").json()
    assert (seen["state"], seen["error"]["code"]) == ("PIPELINE_STATE_CANCELLED", 1) and seen["endTime"]
    operation = bob.delete(f"/v1/{name}").json()
    assert operation["done"] and bob.get(f"/v1/{name}").status_code == 404
    for prefix in ("/v1/", "/ui/"):
        assert bob.get(f"{prefix}{operation['name']}").json() == operation
    assert bob.post(f"/v1/{operation['name']}:wait").json() == operation
    assert bob.post(f"/v1/{operation['name']}:cancel").json() == {}
    assert bob.delete(f"/v1/{operation['name']}").json() == {}
    assert bob.get(f"/v1/{P}/operations/7").status_code == 404
    assert Job.objects.count() == 1


def test_a_model_is_recorded_before_the_pipeline_has_succeeded(script):
    bob = script("bob")
    made = created(bob, modelToUpload=MODEL)
    end_job(Job.objects.get(), "SUCCEEDED")
    seen = bob.get(f"/v1/{made['name']}").json()
    assert seen["state"] == "PIPELINE_STATE_RUNNING" and "endTime" not in seen
    leave_a_model()
    registry.record_models(timezone.now())
    registry.record_models(timezone.now())
    seen = bob.get(f"/v1/{made['name']}").json()
    assert seen["state"] == "PIPELINE_STATE_SUCCEEDED" and seen["endTime"]
    left = seen["modelToUpload"]
    assert (left["versionId"], left["artifactUri"]) == ("1", "gs://staging/out/model")
    assert left["containerSpec"] == MODEL["containerSpec"]
    for name in (left["name"], f"{left['name']}@1", f"{left['name']}%401", f"{left['name']}@default"):
        model = bob.get(f"/v1/{name}").json()
        assert model["versionAliases"] == ["default"] and model["displayName"] == "classifier"
    assert model["trainingPipeline"] == made["name"]
    assert [one["name"] for one in bob.get(MODELS).json()["models"]] == [left["name"]]
    assert ModelVersion.objects.count() == 1


def outputs_on(host, **changes):
    """What the job of the only pipeline wrote on a host, when the job has succeeded."""
    job = Job.objects.get()
    end_job(job, "SUCCEEDED")
    now = timezone.now()
    return HostOutputs.objects.create(job=job, host=host, created_at=now, filled_at=now, **changes)


def state_after(client, made, passed):
    registry.record_models(timezone.now() + passed)
    seen = client.get(f"/v1/{made['name']}").json()
    assert ModelVersion.objects.exists() == (seen["state"] == "PIPELINE_STATE_SUCCEEDED")
    return seen["state"].replace("PIPELINE_STATE_", "")


def test_a_model_is_recorded_when_its_files_are_stored(script, browser):
    """`model = job.run()` in a notebook, and the next cell reads the files."""
    bob = script("bob")
    made = created(bob, modelToUpload=MODEL)
    row = outputs_on(a_host("gpu-7"), stage="ending")
    assert state_after(bob, made, timedelta(hours=20)) == "RUNNING", "they are coming"
    assert "recorded when its files are stored" in browser("bob").get("/jobs/pipelines/").content.decode()
    type(row).objects.update(settled_at=timezone.now())
    leave_a_model()
    assert state_after(bob, made, timedelta()) == "SUCCEEDED"
    assert "recorded when" not in browser("bob").get("/jobs/pipelines/").content.decode()


@pytest.mark.parametrize(
    ("stage", "problem", "waited", "longest"),
    [
        ("writing", "the host does not answer", timedelta(minutes=9), timedelta(minutes=11)),
        ("ending", "the quota is full", timedelta(minutes=9), timedelta(minutes=11)),
        ("ending", "", timedelta(hours=23), timedelta(hours=25)),
    ],
)
def test_a_model_waits_only_so_long_for_a_host_and_its_page_says_where_its_files_are(
    script, browser, stage, problem, waited, longest
):
    bob = script("bob")
    made = created(bob, modelToUpload=MODEL)
    outputs_on(a_host("gpu-7"), stage=stage, problem=problem)
    assert state_after(bob, made, waited) == "RUNNING"
    assert state_after(bob, made, longest) == "SUCCEEDED"
    page = f"/jobs/models/default/{RegisteredModel.objects.get().model_id}/"
    assert "on a host and not stored: gpu-7" in one_line(browser("bob").get(page).content.decode())
    HostOutputs.objects.update(stage="stored", settled_at=timezone.now(), dropped_at=timezone.now())
    assert "not stored" not in browser("bob").get(page).content.decode()


def test_a_model_whose_files_must_stay_on_their_host_is_recorded_at_once(script, browser):
    bob = script("bob")
    made = created(bob, modelToUpload=MODEL)
    outputs_on(a_host("gpu-7"), stage="kept")
    assert state_after(bob, made, timedelta()) == "SUCCEEDED"
    page = f"/jobs/models/default/{RegisteredModel.objects.get().model_id}/"
    assert "on a host and not stored: gpu-7" in one_line(browser("bob").get(page).content.decode())


def test_pipelines_that_wait_for_files_do_not_hold_up_the_others(script, monkeypatch):
    monkeypatch.setattr(registry, "BATCH", 1)
    bob = script("bob")
    first = created(bob, modelToUpload=MODEL)
    outputs_on(a_host("gpu-7"), stage="ending")
    second = created(bob, modelToUpload=MODEL)
    end_job(Job.objects.latest("pk"), "SUCCEEDED")
    leave_a_model()
    registry.record_models(timezone.now())
    assert bob.get(f"/v1/{first['name']}").json()["state"] == "PIPELINE_STATE_RUNNING"
    assert bob.get(f"/v1/{second['name']}").json()["state"] == "PIPELINE_STATE_SUCCEEDED"


def test_a_failed_job_leaves_no_model(script):
    bob = script("bob")
    made = created(bob, modelToUpload=MODEL)
    end_job(Job.objects.get(), "FAILED")
    registry.record_models(timezone.now())
    seen = bob.get(f"/v1/{made['name']}").json()
    assert seen["state"] == "PIPELINE_STATE_FAILED" and "name" not in seen["modelToUpload"]
    assert not RegisteredModel.objects.exists()


@pytest.mark.parametrize("beside", ["", "out/model/", "out/model", "out/model-2/weights", "out/logs/a"])
def test_a_training_that_wrote_no_model_is_a_pipeline_that_failed(script, beside):
    """Also where other objects are stored: the name of the folder itself, and what only begins like it."""
    bob = script("bob")
    made = created(bob, modelToUpload=MODEL)
    outputs_on(a_host("gpu-7"), stage="stored", settled_at=timezone.now(), dropped_at=timezone.now())
    if beside:
        leave_a_model(beside)
    assert state_after(bob, made, timedelta()) == "FAILED"
    seen = bob.get(f"/v1/{made['name']}").json()
    words = "The training wrote no model to gs://staging/out/model."
    assert seen["error"] == {"code": 3, "message": words} and seen["endTime"]
    assert not RegisteredModel.objects.exists()


def test_a_best_trial_that_wrote_no_model_is_a_pipeline_that_failed(script):
    bob = script("bob")
    made = created(bob, **TUNED, modelToUpload=MODEL)
    end_study(TuningJob.objects.get(), 0.5, 0.25)
    leave_a_model("tuned/1/model/weights")
    registry.record_models(timezone.now())
    error = bob.get(f"/v1/{made['name']}").json()["error"]
    assert error["message"] == "The training wrote no model to gs://staging/tuned/2/model."
    assert extended(bob, 4).status_code == 200
    assert bob.get(f"/v1/{made['name']}").json()["state"] == "PIPELINE_STATE_RUNNING"


@pytest.mark.parametrize(
    ("path", "gone", "found"),
    [
        ("staging/out/model/weights", False, "SUCCEEDED"),
        ("staging/out/model/weights", True, "FAILED"),
        ("staging/out/model-2/weights", False, "FAILED"),
    ],
)
def test_a_model_that_was_stored_and_moved_away_before_it_was_recorded(script, path, gone, found):
    """The worker may have been down over night. What the training wrote is known from what its host had."""
    bob = script("bob")
    made = created(bob, modelToUpload=MODEL)
    now, like = timezone.now(), {"size": 1, "mtime_ns": 1, "ctime_ns": 1, "inode": 1}
    row = outputs_on(a_host("gpu-7"), stage="stored", settled_at=now, dropped_at=now)
    OutputFile.objects.create(
        outputs=row, path=path, seen_at=now, stored_at=now, gone_at=now if gone else None, **like
    )
    assert state_after(bob, made, timedelta()) == found


@pytest.mark.parametrize("where", ["a path", "another place", "a shared storage", "a host"])
def test_a_model_directory_that_nobody_can_look_into_is_recorded(script, where):
    """A result is never lost because Trainyard cannot see it."""
    bob = script("bob")
    inputs = copy.deepcopy(ASKED["trainingTaskInputs"])
    upload = {**MODEL, "artifactUri": "gs://elsewhere/digits"} if where == "another place" else MODEL
    if where == "a path":
        inputs["base_output_directory"]["output_uri_prefix"] = "/shared/out"
    made = created(bob, modelToUpload=upload, trainingTaskInputs=inputs)
    if where == "a shared storage":
        LocationStorage.objects.create(location=Location.objects.get(name="default"), directory="/shared")
    if where == "a host":
        row = outputs_on(a_host("gpu-7"), stage="ending", settled_at=timezone.now())
        now, like = timezone.now(), {"size": 1, "mtime_ns": 1, "ctime_ns": 1, "inode": 1}
        OutputFile.objects.create(outputs=row, path="staging/out/model/weights", seen_at=now, **like)
    else:
        end_job(Job.objects.get(), "SUCCEEDED")
    assert state_after(bob, made, timedelta()) == "SUCCEEDED"


def test_versions_aliases_and_their_end(script):
    bob = script("bob")
    succeed(created(bob, modelToUpload=MODEL, modelId="digits"))
    second = {**MODEL, "versionAliases": ["prod"], "versionDescription": "better"}
    succeed(created(bob, modelToUpload=second, parentModel=f"{P}/models/digits"))
    versions = bob.get(f"{MODELS}/digits:listVersions").json()["models"]
    assert [(one["versionId"], one["versionAliases"]) for one in versions] == [
        ("2", ["prod"]),
        ("1", ["default"]),
    ]
    moved = bob.post(
        f"{MODELS}/digits@2:mergeVersionAliases",
        {"versionAliases": ["default", "-prod"]},
        content_type="application/json",
    )
    assert moved.json()["versionAliases"] == ["default"]
    assert bob.get(f"{MODELS}/digits").json()["versionId"] == "2"
    assert bob.get(f"{MODELS}/digits@prod").status_code == 404
    assert bob.delete(f"{MODELS}/digits@2:deleteVersion").status_code == 400
    assert bob.delete(f"{MODELS}/digits@1:deleteVersion").json()["done"]
    assert bob.get(f"{MODELS}/digits@1").status_code == 404
    assert script("bella").delete(f"{MODELS}/digits").status_code == 403
    operation = bob.delete(f"{MODELS}/digits").json()
    assert bob.get(f"/v1/{operation['name']}").json()["done"]
    assert bob.get(f"{MODELS}/digits").status_code == 404 and bob.get(MODELS).json() == {"models": []}
    succeed(created(bob, modelToUpload=MODEL, modelId="digits"))
    assert bob.get(f"{MODELS}/digits").json()["versionId"] == "1"


@pytest.mark.parametrize(
    ("changes", "field", "word"),
    [
        ({"displayName": ...}, "display_name", "required"),
        ({"trainingTaskDefinition": "x"}, "training_task_definition", "custom_task_1.0.0.yaml"),
        ({"trainingTaskDefinition": TUNING}, "training_task_inputs.worker_pool_specs", "not a field"),
        (
            {"trainingTaskDefinition": TUNING, "trainingTaskInputs": {"labels": {"team": "nlp"}}},
            "training_task_inputs.max_trial_count",
            "required",
        ),
        (
            {
                "trainingTaskDefinition": TUNING,
                "trainingTaskInputs": {"trialJobSpec": {"workerPoolSpecs": [{"replicaCount": 2}]}},
            },
            "training_task_inputs.trial_job_spec.worker_pool_specs[0].replica_count",
            "must be 1",
        ),
        ({"trainingTaskInputs": ...}, "training_task_inputs", "required"),
        ({"trainingTaskInputs": {"workerPools": []}}, "training_task_inputs.workerPools", "not a field"),
        (
            {"trainingTaskInputs": {"workerPoolSpecs": [{"replicaCount": 2}]}},
            "training_task_inputs.worker_pool_specs[0].replica_count",
            "must be 1",
        ),
        ({"inputDataConfig": {"datasetId": "7"}}, "input_data_config", "managed data sets"),
        ({"labels": {"A": "b"}}, "labels", "lowercase"),
        ({"modelId": "m"}, "model_id", "beside"),
        ({"modelToUpload": MODEL, "modelId": "M M"}, "model_id", "lowercase"),
        ({"modelToUpload": MODEL, "parentModel": "none"}, "parent_model", "no model none"),
        (
            {"modelToUpload": {**MODEL, "versionAliases": ["1"]}},
            "model_to_upload.version_aliases[0]",
            "lowercase",
        ),
        ({"modelToUpload": {**MODEL, "colour": "red"}}, "model_to_upload.colour", "not a field"),
        ({"modelToUpload": {**MODEL, "metadata": "\0"}}, "model_to_upload", "NUL"),
        ({"modelToUpload": {**MODEL, "metadata": "x" * 300_000}}, "model_to_upload", "262144"),
        ({"modelToUpload": "x"}, "model_to_upload", "object"),
        ({"colour": "red"}, "colour", "not a field"),
    ],
)
def test_a_refusal_names_the_field_as_the_client_sent_it(script, changes, field, word):
    answer = script("bob").post(PIPELINES, asked(**changes), content_type="application/json")
    assert answer.status_code == 400, answer.content
    violations = answer.json()["error"]["details"][0]["fieldViolations"]
    assert any(one["field"] == field and word in one["description"] for one in violations), violations
    assert not TrainingPipeline.objects.exists() and not Job.objects.exists()


def test_a_model_needs_a_place_for_its_files(script):
    inputs = {name: value for name, value in ASKED["trainingTaskInputs"].items() if "output" not in name}
    client = script("bob")
    refused = client.post(
        PIPELINES, asked(trainingTaskInputs=inputs, modelToUpload=MODEL), content_type="application/json"
    )
    (violation,) = refused.json()["error"]["details"][0]["fieldViolations"]
    assert violation["field"] == "model_to_upload.artifact_uri"
    created(client, trainingTaskInputs=inputs, modelToUpload={**MODEL, "artifactUri": "/shared/m"})


def test_a_name_that_is_taken_is_a_conflict(script):
    bob = script("bob")
    succeed(created(bob, modelToUpload=MODEL, modelId="digits"))
    answer = bob.post(
        PIPELINES, asked(modelToUpload=MODEL, modelId="digits"), content_type="application/json"
    )
    assert (answer.status_code, answer.json()["error"]["status"]) == (409, "ALREADY_EXISTS")


def test_one_idempotency_key_creates_one_pipeline(script):
    bob = script("bob", **{"Idempotency-Key": "nightly-1"})
    first = created(bob)
    assert created(bob) == first and TrainingPipeline.objects.count() == Job.objects.count() == 1
    other = bob.post(PIPELINES, asked(modelToUpload=MODEL), content_type="application/json")
    assert other.status_code == 409
    job = bob.post(
        JOBS, {"displayName": "x", "jobSpec": ASKED["trainingTaskInputs"]}, content_type="application/json"
    )
    assert job.status_code == 200 and Job.objects.count() == 2


def test_inline_secrets_are_not_kept_with_the_inputs(script):
    inputs = copy.deepcopy(ASKED["trainingTaskInputs"])
    inputs["worker_pool_specs"][0]["containerSpec"]["env"] = [
        {"name": "T", "value": "canary", "secret": True}
    ]
    made = created(script("bob"), trainingTaskInputs=inputs)
    assert "canary" not in str(made) and "canary" not in str(TrainingPipeline.objects.get().inputs)


def test_lists_are_filtered_and_paged(script):
    bob = script("bob")
    names = [created(bob, displayName=f"tp{number}")["name"] for number in range(3)]
    succeed({"name": names[0]})

    def listed(text):
        return [
            one["displayName"] for one in bob.get(PIPELINES, {"filter": text}).json()["trainingPipelines"]
        ]

    assert listed("") == ["tp2", "tp1", "tp0"]
    assert listed('state="PIPELINE_STATE_SUCCEEDED"') == ["tp0"]
    assert listed('state!="PIPELINE_STATE_SUCCEEDED" AND display_name:"tp*"') == ["tp2", "tp1"]
    assert listed(f'training_task_definition="{CUSTOM}" AND labels.team=vision') == ["tp2", "tp1", "tp0"]
    assert listed('training_task_definition:"automl*"') == []
    later = (timezone.now() + timedelta(hours=1)).isoformat()
    assert listed(f'create_time>"{later}"') == []
    wrong = bob.get(PIPELINES, {"filter": "state=JOB_STATE_RUNNING"})
    assert wrong.status_code == 400 and "PIPELINE_STATE_RUNNING" in wrong.json()["error"]["message"]
    first = bob.get(PIPELINES, {"pageSize": 2}).json()
    second = bob.get(PIPELINES, {"pageSize": 2, "pageToken": first["nextPageToken"]}).json()
    assert [one["displayName"] for one in second["trainingPipelines"]] == ["tp0"]
    assert "nextPageToken" not in second
    assert bob.get(MODELS, {"filter": "state=x"}).status_code == 400


def test_strangers_learn_nothing(script):
    made = created(script("bob"), modelToUpload=MODEL, modelId="digits")
    succeed(made)
    charlie = script("charlie")
    for path in (
        PIPELINES,
        f"/v1/{made['name']}",
        MODELS,
        f"{MODELS}/digits",
        f"/v1/{P}",
        "/v1/projects/default/locations",
    ):
        assert charlie.get(path).status_code == 404, path
        assert script().get(path).status_code == 401, path
    assert script("vera").post(PIPELINES, asked(), content_type="application/json").status_code == 403
    assert script("bella").post(f"/v1/{made['name']}:cancel").status_code == 403


def test_locations_are_those_that_serve_the_project(script):
    found = script("vera").get("/v1/projects/default/locations").json()["locations"]
    assert "projects/default/locations/default" in [one["name"] for one in found]
    assert script("vera").get("/v1/projects/default/locations/default").json() in found
    assert script("vera").get("/v1/projects/default/locations/nowhere").status_code == 404


def test_the_number_of_a_deleted_version_is_not_given_again(script):
    bob = script("bob")
    succeed(created(bob, modelToUpload=MODEL, modelId="digits"))
    other = {**MODEL, "versionAliases": ["prod"]}
    succeed(created(bob, modelToUpload=other, parentModel=f"{P}/models/digits"))
    assert bob.delete(f"{MODELS}/digits@2:deleteVersion").json()["done"]
    succeed(created(bob, modelToUpload=other, parentModel=f"{P}/models/digits"))
    versions = bob.get(f"{MODELS}/digits:listVersions").json()["models"]
    assert [one["versionId"] for one in versions] == ["3", "1"]


def test_a_model_that_cannot_be_recorded_does_not_hold_up_the_others(script, monkeypatch, caplog):
    bob = script("bob")
    first, second = created(bob, modelToUpload=MODEL), created(bob, modelToUpload=MODEL)
    Job.objects.update(state="SUCCEEDED", started_at=timezone.now(), ended_at=timezone.now())
    leave_a_model()
    record, bad = registry._record, int(first["name"].rpartition("/")[2])

    def some(pipeline, *about):
        record(pipeline, *about)
        if pipeline.pk == bad:
            raise IntegrityError("version")

    monkeypatch.setattr(registry, "_record", some)
    registry.record_models(timezone.now())
    assert bob.get(f"/v1/{first['name']}").json()["state"] == "PIPELINE_STATE_RUNNING"
    assert bob.get(f"/v1/{second['name']}").json()["state"] == "PIPELINE_STATE_SUCCEEDED"
    assert ModelVersion.objects.count() == 1
    assert str(bad) in caplog.text


def test_the_longest_output_directory_leaves_a_model(script):
    bob = script("bob")
    prefix = "gs://staging/" + "x" * (2048 - len("gs://staging/"))
    inputs = copy.deepcopy(ASKED["trainingTaskInputs"])
    inputs["base_output_directory"]["output_uri_prefix"] = prefix
    created(bob, modelToUpload=MODEL, trainingTaskInputs=inputs)
    # No object has such a long name: the files stay where they are.
    outputs_on(a_host("gpu-7"), stage="kept")
    registry.record_models(timezone.now())
    left = ModelVersion.objects.get()
    assert left.artifact_uri == f"{prefix}/model"
    left.clean_fields(exclude=["document", "aliases"])


# As Google's console sends it: the fields of a HyperparameterTuningJob.
TUNED = {
    "trainingTaskDefinition": TUNING,
    "trainingTaskInputs": {
        "studySpec": {
            "metrics": [{"metricId": "loss", "goal": "MINIMIZE"}],
            "parameters": [{"parameterId": "lr", "doubleValueSpec": {"minValue": 0.1, "maxValue": 1.0}}],
        },
        "maxTrialCount": "2",
        "parallelTrialCount": "2",
        "trialJobSpec": {
            "workerPoolSpecs": [
                {"containerSpec": {"imageUri": "host", "command": ["train"]}, "replicaCount": "1"}
            ],
            "baseOutputDirectory": {"outputUriPrefix": "gs://staging/tuned"},
        },
    },
}


def end_study(study, *losses, state="SUCCEEDED"):
    """Each loss is that of a trial; None: it measured nothing."""
    now = timezone.now()
    for number, loss in enumerate(losses, 1):
        trial, _ = Trial.objects.get_or_create(
            tuning_job=study,
            number=number,
            defaults={"job": a_trial_job(study, number), "job_state": "QUEUED"},
        )
        final = None if loss is None else {"step": 1, "elapsed": 1.0, "metrics": {"loss": loss}}
        trial.state, trial.final = ("INFEASIBLE" if loss is None else "SUCCEEDED"), final
        trial.save()
    error = {"error_code": 3, "error_message": "trial 1: exit 1"} if state == "FAILED" else {}
    TuningJob.objects.filter(pk=study.pk).update(state=state, started_at=now, ended_at=now, **error)


def a_trial_job(study, number):
    first = study.trials.first().job
    base = {"baseOutputDirectory": {"outputUriPrefix": f"gs://staging/tuned/{number}"}}
    return a_job(study.project, study.owner, name=f"trial {number}", spec={**first.spec, **base})


def test_a_pipeline_that_tunes_submits_a_study_and_follows_it(script):
    bob = script("bob")
    made = created(bob, **TUNED)
    study = TuningJob.objects.get()
    assert (study.display_name, study.labels) == ("tp1-hyperparameter-tuning-job", {"team": "vision"})
    assert study.max_trials == 2 and Job.objects.get().display_name == "tp1-hyperparameter-tuning-job-trial-1"
    backing = f"{P}/hyperparameterTuningJobs/{study.pk}"
    assert made["trainingTaskMetadata"] == {"backingHyperparameterTuningJob": backing}
    assert made["trainingTaskInputs"] == TUNED["trainingTaskInputs"]
    assert (made["trainingTaskDefinition"], made["state"]) == (TUNING, "PIPELINE_STATE_QUEUED")
    assert bob.get(f"/v1/{backing}").json()["displayName"] == study.display_name
    of_tuning = bob.get(PIPELINES, {"filter": 'training_task_definition:"*hyperparameter*"'}).json()
    assert [one["name"] for one in of_tuning["trainingPipelines"]] == [made["name"]]
    assert script("charlie").get(f"/v1/{made['name']}").status_code == 404
    assert script("bella").post(f"/v1/{made['name']}:cancel").status_code == 403
    assert bob.delete(f"/v1/{made['name']}").status_code == 400
    assert bob.post(f"/v1/{made['name']}:cancel", {}, content_type="application/json").json() == {}
    study.refresh_from_db()
    assert study.cancel_requested_by == "bob"
    end_study(study, state="CANCELLED")
    assert bob.get(f"/v1/{made['name']}").json()["state"] == "PIPELINE_STATE_CANCELLED"
    assert bob.delete(f"/v1/{made['name']}").json()["done"] and TuningJob.objects.count() == 1


def test_the_page_of_pipelines_leads_to_the_study(script, browser):
    created(script("bob"), **TUNED)
    page = browser("bob").get("/jobs/pipelines/").content.decode()
    assert f'href="/studies/{TuningJob.objects.get().pk}/"' in page


def test_a_pipeline_that_tunes_leaves_the_model_of_its_best_trial(script):
    bob = script("bob")
    made = created(bob, **TUNED, modelToUpload=MODEL, modelId="digits")
    study = TuningJob.objects.get()
    end_study(study, 0.5, 0.25)
    leave_a_model("tuned/2/model/weights")
    running = bob.get(PIPELINES, {"filter": 'state="PIPELINE_STATE_RUNNING"'}).json()["trainingPipelines"]
    assert [one["name"] for one in running] == [made["name"]]
    registry.record_models(timezone.now())
    seen = bob.get(f"/v1/{made['name']}").json()
    assert (seen["state"], seen["modelToUpload"]["versionId"]) == ("PIPELINE_STATE_SUCCEEDED", "1")
    assert seen["modelToUpload"]["artifactUri"] == "gs://staging/tuned/2/model"
    assert ModelVersion.objects.get().job == study.trials.get(number=2).job
    assert bob.get(f"{MODELS}/digits").json()["trainingPipeline"] == made["name"]


def test_a_pipeline_that_tunes_fails_without_a_best_trial_and_says_so(script):
    """It does not wait for ever for a model that cannot come."""
    bob = script("bob")
    made = created(bob, **TUNED, modelToUpload=MODEL)
    end_study(TuningJob.objects.get(), None)
    registry.record_models(timezone.now())
    seen = bob.get(f"/v1/{made['name']}").json()
    assert seen["state"] == "PIPELINE_STATE_FAILED" and seen["endTime"]
    assert seen["error"] == {
        "code": 3,
        "message": "No trial measured the metric: there is no best trial, and so no model.",
    }
    failed = bob.get(PIPELINES, {"filter": 'state="PIPELINE_STATE_FAILED"'}).json()["trainingPipelines"]
    assert [one["name"] for one in failed] == [made["name"]] and not RegisteredModel.objects.exists()
    assert bob.get(PIPELINES, {"filter": 'state="PIPELINE_STATE_RUNNING"'}).json()["trainingPipelines"] == []


def test_a_study_that_failed_is_the_error_of_its_pipeline(script):
    bob = script("bob")
    made = created(bob, **TUNED)
    end_study(TuningJob.objects.get(), state="FAILED")
    assert bob.get(f"/v1/{made['name']}").json()["error"] == {"code": 3, "message": "trial 1: exit 1"}


def test_one_idempotency_key_creates_one_pipeline_that_tunes(script):
    bob = script("bob", **{"Idempotency-Key": "nightly-1"})
    first = created(bob, **TUNED)
    assert created(bob, **TUNED) == first and TuningJob.objects.count() == 1


def test_a_pipeline_has_one_task(script):
    created(script("bob"), **TUNED)
    with pytest.raises(IntegrityError), transaction.atomic():
        TrainingPipeline.objects.update(tuning_job=None)


def extended(client, count):
    url = f"/api/v1/studies/{TuningJob.objects.get().pk}:extend"
    return client.post(url, {"maxTrialCount": count}, content_type="application/json")


def test_a_study_without_a_result_that_goes_on_leaves_a_model(script):
    bob = script("bob")
    made = created(bob, **TUNED, modelToUpload=MODEL)
    study = TuningJob.objects.get()
    end_study(study, None)
    registry.record_models(timezone.now())
    assert bob.get(f"/v1/{made['name']}").json()["state"] == "PIPELINE_STATE_FAILED"
    assert extended(bob, 4).status_code == 200
    registry.record_models(timezone.now())
    assert bob.get(f"/v1/{made['name']}").json()["state"] == "PIPELINE_STATE_RUNNING"
    end_study(study, None, 0.25)
    leave_a_model("tuned/2/model/weights")
    registry.record_models(timezone.now())
    assert ModelVersion.objects.get().job == study.trials.get(number=2).job
    assert bob.get(f"/v1/{made['name']}").json()["state"] == "PIPELINE_STATE_SUCCEEDED"


def test_a_study_whose_model_was_recorded_is_not_extended(script):
    bob = script("bob")
    created(bob, **TUNED, modelToUpload=MODEL)
    end_study(TuningJob.objects.get(), 0.5)
    leave_a_model("tuned/1/model/weights")
    registry.record_models(timezone.now())
    answer = extended(bob, 4)
    assert answer.status_code == 400 and "Continue it as a new study" in answer.json()["error"]["message"]
    assert TuningJob.objects.get().state == "SUCCEEDED"


def test_a_study_that_goes_on_while_its_model_is_to_be_recorded_leaves_none_yet(script):
    """It was found as one that is over, and extended before its pipeline was locked."""
    bob = script("bob")
    created(bob, **TUNED, modelToUpload=MODEL)
    study = TuningJob.objects.get()
    end_study(study, 0.5)
    assert extended(bob, 4).status_code == 200
    registry._record_one(TrainingPipeline.objects.get().pk, timezone.now())
    assert not ModelVersion.objects.exists()
