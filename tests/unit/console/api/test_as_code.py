"""The programs that the new-job form shows are run: each makes the job of the form."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.utils import timezone

from console.auth import tokens
from console.presenters.new_job import as_code, pipeline_code
from jobs.models import Job, TrainingPipeline
from jobs.rules.spec import parse
from jobs.rules.spec.pipeline import CUSTOM
from tests.unit.console.api.conftest import JOBS

DOCUMENT = {
    "displayName": "it's a <job>",
    "labels": {"team": "vision", "camelcase": "x"},
    "jobSpec": {
        "workerPoolSpecs": [
            {
                "machineSpec": {"machineType": "n1-standard-4"},
                "replicaCount": "1",
                "containerSpec": {
                    "imageUri": "host",
                    "command": ["bash", "-c", "cat <<'JSON'\n$HOME `x` \\n \"é\"\nJSON\necho 'done'"],
                    "env": [{"name": "A", "value": "line 1\nline 2"}, {"name": "EMPTY", "value": ""}],
                },
                "diskSpec": {"bootDiskType": "pd-ssd", "bootDiskSizeGb": 100},
            },
            {},
            {"replicaCount": "3", "containerSpec": {"imageUri": "host", "command": ["a b"], "args": ["--x"]}},
        ],
        "scheduling": {
            "timeout": "5400.5s",
            "maxWaitDuration": "60s",
            "strategy": "SPOT",
            "disableRetries": True,
        },
        "baseOutputDirectory": {"outputUriPrefix": "/data/out"},
        "enableWebAccess": True,
    },
}


@pytest.fixture
def shown(live_server):
    canonical = parse.to_document(parse.parse_custom_job(DOCUMENT))
    codes = as_code.of(canonical, "default", "us-central1", live_server.url)
    return canonical, {code.name: code.text for code in codes}


def run(command, token, text=""):
    env = {**os.environ, "TRAINYARD_TOKEN": token, "NO_PROXY": "*"}
    done = subprocess.run(
        command, input=text, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.django_db(transaction=True)
def test_json_trainyard_sdk_and_curl_make_the_same_job(
    shown, cast, script, live_server, tmp_path, monkeypatch
):
    """And the same as a submit of the document itself."""
    canonical, codes = shown
    token = tokens.create(cast.bob, "programs", timezone.now())[1]
    run(["bash", "-eu", "-c", codes["curl"]], token)
    run([sys.executable, "-c", codes["SDK"]], token)
    monkeypatch.setenv("TRAINYARD_CONSOLE", live_server.url)
    monkeypatch.setenv("TRAINYARD_CONFIG", str(tmp_path))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    run(["bash", "-eu", "-c", codes["trainyard"]], token)
    assert script("bob").post(JOBS, codes["JSON"], content_type="application/json").status_code == 200
    made = list(Job.objects.values_list("display_name", "labels", "spec", "location_name"))
    assert made == [(canonical["displayName"], canonical["labels"], canonical["jobSpec"], "us-central1")] * 4


def test_gcloud_gets_the_job_as_its_flags_and_its_file(shown):
    """gcloud itself is not in the packages of the tests. A shell shows which arguments and which file it would get."""
    canonical, codes = shown
    script = f"gcloud() {{ printf '%s\\n' \"$@\"; cat; }}\n{codes['gcloud']}"
    done = subprocess.run(
        ["bash", "-eu", "-c", script], capture_output=True, text=True, timeout=30, check=True
    )
    lines = done.stdout.split("\n")
    assert lines[:3] == ["ai", "custom-jobs", "create"] and "--display-name=it's a <job>" in lines
    assert "--region=us-central1" in lines and "--labels=team=vision,camelcase=x" in lines
    written = done.stdout[done.stdout.index("{") :]
    assert parse.parse_custom_job({"displayName": "x", "jobSpec": json.loads(written)}).job_spec == (
        parse.parse_custom_job(canonical).job_spec
    )


def test_secret_variables_are_left_to_those_who_can_send_them():
    env = [
        {"name": "HF_TOKEN", "value": "hf_canary", "secret": True},
        {"name": "WANDB", "value": "", "valueFrom": {"secret": "W"}},
    ]
    pool = {"containerSpec": {"imageUri": "host", "command": ["true"], "env": env}}
    found = as_code.of({"displayName": "x", "jobSpec": {"workerPoolSpecs": [pool]}}, "p", "l", "http://x")
    codes = {code.name: code for code in found}
    assert not any("hf_canary" in code.text + code.note for code in found)
    assert (
        "HF_TOKEN" in codes["curl"].note and "WANDB" not in codes["curl"].note and '"W"' in codes["curl"].text
    )
    assert codes["SDK"].text == codes["gcloud"].text == "" and "or curl" in codes["gcloud"].note


def test_what_only_trainyard_has_is_left_to_curl():
    pool = {"containerSpec": {"imageUri": "host", "command": ["true"]}, "trainyard": {"runtime": "process"}}
    found = as_code.of({"displayName": "x", "jobSpec": {"workerPoolSpecs": [pool]}}, "p", "l", "http://x")
    codes = {code.name: code for code in found}
    assert '"trainyard"' in codes["curl"].text
    assert codes["SDK"].text == codes["gcloud"].text == "" and "the runtime" in codes["SDK"].note


@pytest.mark.django_db(transaction=True)
def test_json_sdk_and_curl_of_a_pipeline_start_the_same_training(shown, cast, script, live_server):
    """Google's client takes the inputs as a free value: also what only Trainyard has."""
    pools = [
        {"containerSpec": {"imageUri": "host", "command": ["true"]}, "trainyard": {"runtime": "process"}}
    ]
    inputs = {**shown[0]["jobSpec"], "workerPoolSpecs": [*shown[0]["jobSpec"]["workerPoolSpecs"], *pools]}
    pipeline = {
        "displayName": "it's a <model>",
        "labels": {"team": "vision"},
        "trainingTaskDefinition": CUSTOM,
        "trainingTaskInputs": inputs,
        "modelToUpload": {"displayName": "digits", "versionDescription": "with noise"},
    }
    token = tokens.create(cast.bob, "programs", timezone.now())[1]
    codes = {
        code.name: code.text for code in pipeline_code.of(pipeline, "default", "us-central1", live_server.url)
    }
    run(["bash", "-eu", "-c", codes["curl"]], token)
    run([sys.executable, "-c", codes["SDK"]], token)
    path = JOBS.replace("customJobs", "trainingPipelines")
    assert script("bob").post(path, codes["JSON"], content_type="application/json").status_code == 200
    made = list(TrainingPipeline.objects.select_related("job"))
    assert len(made) == 3
    for one in made:
        assert (one.display_name, one.labels, one.upload) == (
            pipeline["displayName"],
            pipeline["labels"],
            pipeline["modelToUpload"],
        )
        assert one.job.spec == made[0].job.spec and one.job.spec["enableWebAccess"] is True
    assert made[0].job.spec["workerPoolSpecs"][3]["trainyard"] == {"runtime": "process"}


def test_a_pipeline_shows_no_value_of_a_secret():
    env = [{"name": "HF_TOKEN", "value": "hf_canary", "secret": True}]
    pool = {"containerSpec": {"imageUri": "host", "command": ["true"], "env": env}}
    pipeline = {"displayName": "x", "trainingTaskInputs": {"workerPoolSpecs": [pool]}}
    for code in pipeline_code.of(pipeline, "p", "l", "http://x"):
        assert "hf_canary" not in code.text and "HF_TOKEN" in code.note
