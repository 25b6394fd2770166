"""What a user of Google's SDK does, against the address in argv[1] with the token in argv[2].

Runs with any version of google-cloud-aiplatform, unpatched. Prints one line of JSON for each step:
{"step": name, "error": null or the traceback, "said": what the step has to tell}. argv[3:] choose steps; without them
all are run that need no image.
"""

from __future__ import annotations

import io
import json
import re
import sys
import tarfile
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from google.api_core import exceptions
from google.cloud import aiplatform, storage
from google.cloud.aiplatform import hyperparameter_tuning as tuning
from google.cloud.aiplatform import models
from google.cloud.aiplatform_v1 import JobServiceClient, PipelineServiceClient
from google.oauth2.credentials import Credentials

URL, TOKEN = sys.argv[1], sys.argv[2]
# The names of the two versions differ, so that they can use one product after the other.
NAME = "sdk-" + aiplatform.__version__.replace(".", "-")
PATIENCE_S = 120
STAGING = f"{NAME}-staging"
# Fails where the argument or the variable is missing, and leaves a file as its model.
SCRIPT = """import os, sys
print("image:", os.environ.get("TRAINYARD_IMAGE", "none"))
assert sys.argv[1:] == ["--epochs=3"] and os.environ["COLOUR"] == "blue", (sys.argv, os.environ)
with open(os.path.join(os.environ["AIP_MODEL_DIR"], "model.txt"), "w") as file:
    file.write("trained with " + sys.argv[1])
"""
# One trial: it checks which trial it is, and reports through a `hypertune` that nobody has installed.
TRIAL = """import argparse, json, os
import hypertune

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--units", type=int, required=True)
parser.add_argument("--optimizer", choices=["sgd", "adam"], required=True)
parser.add_argument("--momentum", type=float)
args = parser.parse_args()
assert (args.optimizer == "sgd") == (args.momentum is not None), args
trial = os.environ["CLOUD_ML_TRIAL_ID"]
assert json.loads(os.environ["CLUSTER_SPEC"])["task"]["trial"] == trial
for step in (1, 2, 3):
    hypertune.HyperTune().report_hyperparameter_tuning_metric("accuracy", step / 10 - args.lr, step)
    hypertune.HyperTune().report_hyperparameter_tuning_metric("loss", args.units / step, step)
"""
# One trial whose best step is not its last one. It checks that a parameter is there where its parent has the value.
PEAK = """import sys
import hypertune

given = dict(each[2:].split("=") for each in sys.argv[1:])
assert ("nesterov" in given) == (given["optimizer"] == "sgd"), given
assert ("momentum" in given) == (given.get("nesterov") == "yes"), given
for step, value in ((1, 0.1), (2, 0.9), (3, 0.5)):
    hypertune.HyperTune().report_hyperparameter_tuning_metric("score", value, step)
"""
# One trial of a training pipeline: the higher its number, the better.
TUNED = """import sys
import hypertune

value = float(sys.argv[1].partition("=")[2])
hypertune.HyperTune().report_hyperparameter_tuning_metric("score", value, 1)
"""
DEFINITION = (
    "gs://google-cloud-aiplatform/schema/trainingjob/definition/hyperparameter_tuning_task_1.0.0.yaml"
)
# One of Google's prebuilt images. In the place of it, the hosts use an image with Python and pip.
PREBUILT = "us-docker.pkg.dev/vertex-ai/training/pytorch-gpu.2-4.py310:latest"
# A training that leaves a file as its model, wherever that is to be.
LEAVES_A_MODEL = ["sh", "-c", 'mkdir -p "$AIP_MODEL_DIR"; echo trained > "$AIP_MODEL_DIR/model.txt"; sleep 1']
STEPS, NEED_IMAGE = {}, set()


def step(function):
    STEPS[function.__name__] = function
    return function


def step_in_image(function):
    """One that needs hosts with an engine, and an alias of the prebuilt image."""
    NEED_IMAGE.add(function.__name__)
    return step(function)


def init(token=TOKEN, location="us-central1", **options):
    aiplatform.init(
        project="default",
        location=location,
        staging_bucket="gs://staging",
        api_endpoint=URL,
        api_transport="rest",
        credentials=Credentials(token=token),
        **options,
    )


def pools(*command, **more):
    machine = {"machine_type": "host"}
    return [
        {
            "machine_spec": machine,
            "replica_count": 1,
            "container_spec": {"image_uri": "host", "command": list(command)},
            **more,
        }
    ]


def custom_job(name, *command, **options):
    return aiplatform.CustomJob(display_name=name, worker_pool_specs=pools(*command), **options)


def wait_until(condition):
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.2)
    raise AssertionError("waited too long")


def refused(kind, act):
    try:
        act()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


@step
def custom_job_run():
    job = custom_job(f"{NAME}-run", "sh", "-c", "echo hello from the sdk; sleep 1", labels={"team": "sdk"})
    job.run(timeout=600)
    assert job.state.name == "JOB_STATE_SUCCEEDED", job.state
    assert job.start_time and job.end_time >= job.start_time and job.labels == {"team": "sdk"}
    return job.resource_name


@step
def submit_list_get_cancel_delete():
    job = custom_job(f"{NAME}-submit", "sleep", "600", labels={"step": "submit"})
    job.submit(timeout=3600, restart_job_on_worker_restart=True)
    found = aiplatform.CustomJob.list(filter=f'display_name:"{NAME}-sub*" AND labels.step=submit')
    assert [one.resource_name for one in found] == [job.resource_name]
    assert not aiplatform.CustomJob.list(filter=f'display_name="{NAME}-submit" AND state="JOB_STATE_FAILED"')
    assert (
        aiplatform.CustomJob.list(filter=f'NOT display_name="{NAME}-submit"', order_by="create_time desc")
        is not None
    )
    again = aiplatform.CustomJob.get(job.resource_name.rpartition("/")[2])
    assert again.job_spec.scheduling.timeout.total_seconds() == 3600
    wait_until(lambda: again.state.name == "JOB_STATE_RUNNING")
    again.cancel()
    wait_until(lambda: again.state.name == "JOB_STATE_CANCELLED")
    assert again.error.code == 1
    wait_until(lambda: deleted(again))
    refused(exceptions.NotFound, lambda: aiplatform.CustomJob.get(job.resource_name))


def deleted(job):
    """A job whose host has not proved its end yet cannot be deleted."""
    try:
        job.delete()
    except exceptions.BadRequest:
        return False
    return True


@step
def failed():
    job = custom_job(f"{NAME}-failed", "sh", "-c", "exit 7")
    text = refused(RuntimeError, job.run)
    assert "code: 3" in text and "7" in text, text
    assert job.state.name == "JOB_STATE_FAILED"
    return text


@step
def timed_out():
    job = custom_job(f"{NAME}-timeout", "sleep", "600")
    text = refused(RuntimeError, lambda: job.run(timeout=2))
    assert job.state.name in ("JOB_STATE_FAILED", "JOB_STATE_CANCELLED"), job.state
    return text


@step
def web_access():
    job = custom_job(f"{NAME}-shell", "sleep", "600")
    job.submit(enable_web_access=True)
    uris = wait_until(lambda: dict(job.web_access_uris))
    assert list(uris) == ["workerpool0-0"] and uris["workerpool0-0"].startswith("http"), uris
    job.cancel()
    return uris["workerpool0-0"]


@step
def custom_container_training_job():
    job = aiplatform.CustomContainerTrainingJob(
        display_name=f"{NAME}-pipeline",
        container_uri="host",
        command=LEAVES_A_MODEL,
        model_serving_container_image_uri="serve:1",
        labels={"kind": "pipeline"},
    )
    model = job.run(
        base_output_dir="/tmp/trainyard-sdk-out",
        machine_type="host",
        model_display_name=f"{NAME}-model",
        model_id=f"{NAME}-model",
    )
    assert job.state.name == "PIPELINE_STATE_SUCCEEDED", job.state
    assert model.display_name == f"{NAME}-model" and model.version_id == "1", model
    assert model.uri == "/tmp/trainyard-sdk-out/model", model.uri
    second = aiplatform.CustomContainerTrainingJob(
        display_name=f"{NAME}-pipeline-2",
        container_uri="host",
        command=LEAVES_A_MODEL,
        model_serving_container_image_uri="serve:2",
    )
    newer = second.run(
        base_output_dir="/tmp/trainyard-sdk-out-2",
        machine_type="host",
        model_display_name=f"{NAME}-model",
        parent_model=model.resource_name,
        is_default_version=False,
        model_version_aliases=["candidate"],
    )
    assert newer.version_id == "2" and newer.resource_name == model.resource_name
    assert list(newer.version_aliases) == ["candidate"], newer.version_aliases
    versions = models.ModelRegistry(f"{NAME}-model").list_versions()
    assert sorted(one.version_id for one in versions) == ["1", "2"]
    assert aiplatform.Model.list(filter=f'display_name="{NAME}-model"')
    return model.resource_name


def tuning_job(name, command, trials=4):
    return aiplatform.HyperparameterTuningJob(
        display_name=name,
        custom_job=custom_job(f"{name}-trial", *command),
        metric_spec={"accuracy": "maximize", "loss": "minimize"},
        parameter_spec={
            "lr": tuning.DoubleParameterSpec(min=0.0001, max=0.1, scale="log"),
            "units": tuning.IntegerParameterSpec(min=4, max=128, scale="linear"),
            "optimizer": tuning.CategoricalParameterSpec(
                values=["sgd", "adam"],
                conditional_parameter_spec={
                    "momentum": tuning.DoubleParameterSpec(
                        min=0.5, max=0.99, scale="linear", parent_values=["sgd"]
                    )
                },
            ),
        },
        max_trial_count=trials,
        parallel_trial_count=2,
        labels={"kind": "tuning"},
    )


@step
def hyperparameter_tuning_job_run():
    job = tuning_job(f"{NAME}-tuning", ("python3", "-c", TRIAL))
    job.run()
    assert job.state.name == "JOB_STATE_SUCCEEDED", job.state
    assert sorted(trial.id for trial in job.trials) == ["1", "2", "3", "4"]
    for trial in job.trials:
        assert trial.state.name == "SUCCEEDED", trial
        given = {one.parameter_id: one.value for one in trial.parameters}
        assert ("momentum" in given) == (given["optimizer"] == "sgd"), given
        final = {one.metric_id: one.value for one in trial.final_measurement.metrics}
        assert trial.final_measurement.step_count == 3, trial
        assert abs(final["accuracy"] - (0.3 - given["lr"])) < 1e-9 and final["loss"] == given["units"] / 3
        assert [one.step_count for one in trial.measurements] == [1, 2, 3], trial
    assert len({str(trial.parameters) for trial in job.trials}) == 4
    found = aiplatform.HyperparameterTuningJob.list(filter="labels.kind=tuning")
    assert job.resource_name in [one.resource_name for one in found]
    of_trial = aiplatform.CustomJob.get(job.trials[0].custom_job.rpartition("/")[2])
    assert of_trial.display_name == f"{NAME}-tuning-trial-{job.trials[0].id}", of_trial.display_name
    return job.resource_name


@step
def hyperparameter_tuning_job_cancel_and_fail():
    job = tuning_job(f"{NAME}-tuning-long", ("sh", "-c", "sleep 600"))
    job.run(sync=False)
    job.wait_for_resource_creation()
    wait_until(lambda: len(job.trials) == 2)
    again = aiplatform.HyperparameterTuningJob.get(job.resource_name.rpartition("/")[2])
    wait_until(lambda: again.state.name == "JOB_STATE_RUNNING")
    again.cancel()
    wait_until(lambda: again.state.name == "JOB_STATE_CANCELLED")
    assert again.error.code == 1 and {trial.state.name for trial in again.trials} == {"INFEASIBLE"}
    wait_until(lambda: deleted(again))
    text = refused(RuntimeError, tuning_job(f"{NAME}-tuning-failed", ("sh", "-c", "exit 7")).run)
    # Two run at once: either may be the first to end.
    assert "code: 3" in text and re.search("trial [12]:", text), text
    return text


def searched(name, command, parameters, trials, parallel, **options):
    return aiplatform.HyperparameterTuningJob(
        display_name=f"{NAME}-{name}",
        custom_job=custom_job(f"{NAME}-{name}-trial", *command),
        metric_spec={"score": "maximize"},
        parameter_spec=parameters,
        max_trial_count=trials,
        parallel_trial_count=parallel,
        **options,
    )


@step
def hyperparameter_tuning_job_grid_with_nested_conditions_and_the_best_measurement():
    momentum = tuning.DiscreteParameterSpec(values=[0.5, 0.9], scale="linear", parent_values=["yes"])
    nesterov = tuning.CategoricalParameterSpec(
        values=["yes", "no"], parent_values=["sgd"], conditional_parameter_spec={"momentum": momentum}
    )
    optimizer = tuning.CategoricalParameterSpec(
        values=["adam", "sgd"], conditional_parameter_spec={"nesterov": nesterov}
    )
    batch = tuning.DiscreteParameterSpec(values=[16, 32], scale="log")
    job = searched(
        "grid",
        ("python3", "-c", PEAK),
        {"optimizer": optimizer, "batch": batch},
        trials=50,
        parallel=4,
        search_algorithm="grid",
        measurement_selection="best",
    )
    job.run()
    assert job.state.name == "JOB_STATE_SUCCEEDED", job.state
    points = [tuple(sorted((one.parameter_id, one.value) for one in each.parameters)) for each in job.trials]
    # adam, sgd without nesterov, and with it two momentums; each with two sizes of a batch.
    assert len(points) == len(set(points)) == 8, points
    assert {each.final_measurement.step_count for each in job.trials} == {2}, job.trials
    return str(points)


@step
def hyperparameter_tuning_job_random_with_shells_and_conditions_of_numbers():
    accumulate = tuning.IntegerParameterSpec(min=1, max=4, scale="log", parent_values=[32])
    width = tuning.DoubleParameterSpec(min=0.1, max=0.9, scale="reverse_log", parent_values=[2, 3])
    parameters = {
        "batch": tuning.DiscreteParameterSpec(
            values=[16, 32], scale="linear", conditional_parameter_spec={"accumulate": accumulate}
        ),
        "layers": tuning.IntegerParameterSpec(
            min=1, max=3, scale="linear", conditional_parameter_spec={"width": width}
        ),
    }
    asleep = ("sh", "-c", "sleep 600")
    job = searched("random", asleep, parameters, trials=4, parallel=2, search_algorithm="random")
    job.run(enable_web_access=True, sync=False)
    job.wait_for_resource_creation()
    wait_until(lambda: [bool(each.web_access_uris) for each in job.trials] == [True, True])
    for trial in job.trials:
        uris = dict(trial.web_access_uris)
        assert list(uris) == ["workerpool0-0"] and uris["workerpool0-0"].startswith("http"), uris
        given = {one.parameter_id: one.value for one in trial.parameters}
        assert ("accumulate" in given) == (given["batch"] == 32), given
        assert ("width" in given) == (given["layers"] in (2, 3)), given
        assert 0.1 <= given.get("width", 0.1) <= 0.9, given
    scales = {
        each.parameter_id: each.conditional_parameter_specs[0].parameter_spec.scale_type.name
        for each in job._gca_resource.study_spec.parameters
    }
    assert scales == {"batch": "UNIT_LOG_SCALE", "layers": "UNIT_REVERSE_LOG_SCALE"}, scales
    job.cancel()
    wait_until(lambda: job.state.name == "JOB_STATE_CANCELLED")


@step
def hyperparameter_tuning_job_ends_with_its_failed_trials():
    parameters = {"x": tuning.DoubleParameterSpec(min=0.1, max=0.9, scale="linear")}
    fails = ("sh", "-c", "exit 7")
    job = searched("failing", fails, parameters, trials=6, parallel=1, max_failed_trial_count=3)
    text = refused(RuntimeError, job.run)
    assert "code: 3" in text and "3 of 3 trials failed" in text, text
    assert job.state.name == "JOB_STATE_FAILED" and len(job.trials) == 3, job.trials
    return text


@step
def training_pipelines_get_list_cancel_delete():
    job = aiplatform.CustomContainerTrainingJob(
        display_name=f"{NAME}-long-pipeline", container_uri="host", command=["sleep", "600"]
    )
    job.run(base_output_dir="/tmp/trainyard-sdk-out", machine_type="host", sync=False)
    job.wait_for_resource_creation()
    found = aiplatform.CustomContainerTrainingJob.list(filter=f'display_name="{NAME}-long-pipeline"')
    assert [one.resource_name for one in found] == [job.resource_name]
    again = aiplatform.CustomContainerTrainingJob.get(job.resource_name)
    wait_until(lambda: again.state.name == "PIPELINE_STATE_RUNNING")
    again.cancel()
    wait_until(lambda: again.state.name == "PIPELINE_STATE_CANCELLED")
    again.delete()
    refused(exceptions.NotFound, lambda: aiplatform.CustomContainerTrainingJob.get(job.resource_name))


@step
def failed_pipeline():
    job = aiplatform.CustomContainerTrainingJob(
        display_name=f"{NAME}-failed-pipeline", container_uri="host", command=["sh", "-c", "exit 7"]
    )
    text = refused(
        RuntimeError, lambda: job.run(base_output_dir="/tmp/trainyard-sdk-out", machine_type="host")
    )
    assert "code: 3" in text, text
    return text


@step
def pipeline_without_a_model():
    job = aiplatform.CustomContainerTrainingJob(
        display_name=f"{NAME}-no-model",
        container_uri="host",
        command=["true"],
        model_serving_container_image_uri="serve:1",
    )
    directory = f"gs://{STAGING}/no-model"
    text = refused(RuntimeError, lambda: job.run(base_output_dir=directory, machine_type="host"))
    assert f"The training wrote no model to {directory}/model." in text, text
    assert job.state.name == "PIPELINE_STATE_FAILED", job.state
    return text


def bucket():
    """The staging bucket. STORAGE_EMULATOR_HOST says where it is."""
    client = storage.Client(project="default", credentials=Credentials(token=TOKEN))
    try:
        return client.create_bucket(STAGING)
    except exceptions.Conflict:
        return client.bucket(STAGING)


def script():
    path = Path(tempfile.mkdtemp()) / "train.py"
    path.write_text(SCRIPT)
    return str(path)


TRAINED = {"args": ["--epochs=3"], "environment_variables": {"COLOUR": "blue"}, "machine_type": "host"}


def trained(directory):
    """What the script left, as the storage has it: a pipeline with a model has succeeded when its files are stored."""
    text = model_of(directory).download_as_bytes().decode()
    assert text == "trained with --epochs=3", text
    return text


def model_of(directory):
    return bucket().blob(f"{directory}/model/model.txt")


# With an image that is none of Google's, from_local_script lets pip of the host install the script for its login.
WITHOUT_AN_INDEX = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_BREAK_SYSTEM_PACKAGES": "1"}


@step
def custom_job_from_local_script():
    return from_local_script("host", "local-script", **WITHOUT_AN_INDEX)


@step_in_image
def custom_job_from_local_script_in_a_prebuilt_image():
    return from_local_script(PREBUILT, "local-script-in-image")


def from_local_script(image, name, **more):
    bucket()
    job = aiplatform.CustomJob.from_local_script(
        display_name=f"{NAME}-{name}",
        script_path=script(),
        container_uri=image,
        base_output_dir=f"gs://{STAGING}/{name}",
        credentials=Credentials(token=TOKEN),
        staging_bucket=f"gs://{STAGING}",
        **{**TRAINED, "environment_variables": {**TRAINED["environment_variables"], **more}},
    )
    job.run()
    assert job.state.name == "JOB_STATE_SUCCEEDED", job.state
    # A job has succeeded when its programs have ended. Its files come from the host behind that.
    wait_until(model_of(name).exists)
    return trained(name)


@step
def custom_training_job():
    return script_job("host", "script")


@step_in_image
def custom_training_job_in_a_prebuilt_image():
    return script_job(PREBUILT, "script-in-image")


def script_job(image, name):
    bucket()
    job = aiplatform.CustomTrainingJob(
        display_name=f"{NAME}-{name}",
        script_path=script(),
        container_uri=image,
        staging_bucket=f"gs://{STAGING}",
        model_serving_container_image_uri="serve:1",
    )
    directory = f"gs://{STAGING}/{name}"
    model = job.run(base_output_dir=directory, model_display_name=f"{NAME}-{name}", **TRAINED)
    assert job.state.name == "PIPELINE_STATE_SUCCEEDED", job.state
    assert model.uri == f"{directory}/model", model.uri
    return trained(name)


@step
def custom_python_package_training_job():
    return package_job("host", "package")


@step_in_image
def custom_python_package_training_job_in_a_prebuilt_image():
    return package_job(PREBUILT, "package-in-image")


def package_job(image, name):
    blob = bucket().blob(f"packages/{name}/trainer-0.1.tar.gz")
    blob.upload_from_string(source_package(), content_type="application/gzip")
    job = aiplatform.CustomPythonPackageTrainingJob(
        display_name=f"{NAME}-{name}",
        python_package_gcs_uri=f"gs://{STAGING}/{blob.name}",
        python_module_name="trainer.task",
        container_uri=image,
        staging_bucket=f"gs://{STAGING}",
        model_serving_container_image_uri="serve:1",
    )
    directory = f"gs://{STAGING}/{name}"
    model = job.run(base_output_dir=directory, model_display_name=f"{NAME}-{name}", **TRAINED)
    assert job.state.name == "PIPELINE_STATE_SUCCEEDED", job.state
    assert (model.display_name, model.uri) == (f"{NAME}-{name}", f"{directory}/model"), model
    return trained(name)


@step_in_image
def custom_container_training_job_in_a_prebuilt_image():
    bucket()
    directory = f"gs://{STAGING}/container-in-image"
    job = aiplatform.CustomContainerTrainingJob(
        display_name=f"{NAME}-container-in-image",
        container_uri=PREBUILT,
        command=["python3", "-c", SCRIPT],
        model_serving_container_image_uri="serve:1",
    )
    model = job.run(base_output_dir=directory, model_display_name=f"{NAME}-container-in-image", **TRAINED)
    assert job.state.name == "PIPELINE_STATE_SUCCEEDED", job.state
    assert model.uri == f"{directory}/model", model.uri
    return trained("container-in-image")


@step
def training_pipeline_that_tunes():
    """The SDK has no class for it: its own client of the service, with the inputs of a study."""
    client, parent = raw(PipelineServiceClient), "projects/default/locations/us-central1"
    trial = {
        "workerPoolSpecs": [
            {
                "machineSpec": {"machineType": "host"},
                "replicaCount": "1",
                "containerSpec": {"imageUri": "host", "command": ["python3", "-c", TUNED]},
            }
        ],
        "baseOutputDirectory": {"outputUriPrefix": "/tmp/trainyard-sdk-tuned"},
    }
    study = {
        "metrics": [{"metricId": "score", "goal": "MAXIMIZE"}],
        "parameters": [{"parameterId": "n", "discreteValueSpec": {"values": [1, 2, 3]}}],
        "algorithm": "GRID_SEARCH",
    }
    inputs = {"studySpec": study, "maxTrialCount": 3, "parallelTrialCount": 3, "trialJobSpec": trial}
    made = client.create_training_pipeline(
        parent=parent,
        training_pipeline={
            "display_name": f"{NAME}-tuned",
            "training_task_definition": DEFINITION,
            "training_task_inputs": inputs,
            "model_to_upload": {"display_name": f"{NAME}-tuned"},
        },
    )

    def over():
        found = client.get_training_pipeline(name=made.name)
        return found if found.state.name == "PIPELINE_STATE_SUCCEEDED" or found.error.code else None

    found = wait_until(over)
    assert found.state.name == "PIPELINE_STATE_SUCCEEDED", found.error
    named = dict(found.training_task_metadata)["backingHyperparameterTuningJob"]
    tuned = raw(JobServiceClient).get_hyperparameter_tuning_job(name=named)
    best = max(tuned.trials, key=lambda trial: trial.final_measurement.metrics[0].value)
    model = aiplatform.Model(found.model_to_upload.name)
    assert best.parameters[0].value == 3 and tuned.display_name == f"{NAME}-tuned-hyperparameter-tuning-job"
    assert model.uri == f"/tmp/trainyard-sdk-tuned/{best.id}/model", model.uri
    return model.resource_name


def source_package():
    setup = "from setuptools import setup\nsetup(name='trainer', version='0.1', packages=['trainer'])\n"
    files = {"setup.py": setup, "trainer/__init__.py": "", "trainer/task.py": SCRIPT}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"trainer-0.1/{name}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()


@step
def errors():
    wrong = [{**pools("true")[0], "replica_count": 2}]
    job = aiplatform.CustomJob(display_name="x", worker_pool_specs=wrong)
    text = refused(exceptions.BadRequest, job.submit)
    assert "replica_count" in text, text
    refused(exceptions.NotFound, lambda: aiplatform.CustomJob.get("12345"))
    refused(exceptions.BadRequest, lambda: aiplatform.CustomJob.list(filter="colour=red"))
    client = raw(JobServiceClient)
    parent = "projects/default/locations/us-central1"
    refused(exceptions.MethodNotImplemented, lambda: list(client.list_batch_prediction_jobs(parent=parent)))
    init(token="tyd_unknown")
    try:
        refused(exceptions.Forbidden, aiplatform.CustomJob.list)
    finally:
        init()
    return text


def raw(kind):
    return kind(client_options={"api_endpoint": URL}, transport="rest", credentials=Credentials(token=TOKEN))


@step
def raw_gapic_with_a_free_location():
    client, parent = raw(JobServiceClient), "projects/default/locations/lab-rack-1"
    spec = {"worker_pool_specs": pools("true")}
    made = client.create_custom_job(
        parent=parent, custom_job={"display_name": f"{NAME}-raw", "job_spec": spec}
    )
    assert made.name.startswith(f"{parent}/customJobs/")
    wait_until(lambda: client.get_custom_job(name=made.name).state.name == "JOB_STATE_SUCCEEDED")
    shown = client.list_custom_jobs(
        {"parent": parent, "filter": f'display_name="{NAME}-raw"', "page_size": 1, "read_mask": "name,state"}
    )
    assert [(one.name, one.display_name) for one in shown] == [(made.name, "")]
    operation = wait_until(lambda: deletion(client, made.name))
    assert operation.result() is not None and operation.done()
    assert list(raw(PipelineServiceClient).list_training_pipelines(parent=parent)) == []


def deletion(client, name):
    try:
        return client.delete_custom_job(name=name)
    except exceptions.BadRequest:
        return None


def outcome(name):
    said, error = None, None
    try:
        said = STEPS[name]()
    except BaseException:
        error = traceback.format_exc()
        cancel_all()
    return json.dumps({"step": name, "error": error, "said": said})


def cancel_all():
    """After a failure nothing of it may go on: it would take the place of other steps."""
    for job in aiplatform.CustomJob.list(filter=f'display_name:"{NAME}-*"'):
        job.cancel()


def main():
    init()
    wanted = [name for name in STEPS if (name in sys.argv[3:] if sys.argv[3:] else name not in NEED_IMAGE)]
    # The SDK polls every 5 seconds. The last step changes the token that all of them use.
    with ThreadPoolExecutor(len(wanted)) as threads:
        for line in threads.map(outcome, [name for name in wanted if name != "errors"]):
            print(line, file=RESULTS, flush=True)
    if "errors" in wanted:
        print(outcome("errors"), file=RESULTS, flush=True)


RESULTS = sys.stdout
# The SDK prints too.
sys.stdout = sys.stderr

if __name__ == "__main__":
    main()
