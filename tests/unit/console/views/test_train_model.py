"""The page Train new model: its steps, the training pipeline that they start, and what is refused."""

from __future__ import annotations

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from jobs.models import Artifact, Job, JobTemplate, RegisteredModel, TrainingPipeline
from jobs.rules.spec.pipeline import CUSTOM
from tests.unit.console.views.example_rows import a_host, a_job, a_pipeline, a_stored_file, one_line

pytestmark = pytest.mark.django_db

TRAIN = "/jobs/pipelines/new"
HTMX = {"HX-Request": "true"}
FORM = {
    "project": "default",
    "location": "default",
    "request_id": "form-1",
    "model-dataset": "none",
    "model-method": "custom",
    "model-leaves": "model",
    "display_name": "digits",
    "base_output_directory": "gs://runs/digits",
    "pool0-kind": "image",
    "pool0-image": "ghcr.io/lab/train:1.2",
    "pool0-args": "--epochs=3",
    "pool0-replica_count": "1",
}


@pytest.fixture
def bob(browser, cast, project):
    a_host()
    return browser("bob")


def text_of(answer, status=200):
    assert answer.status_code == status, answer.content[:300]
    return one_line(answer.content.decode())


def started(answer):
    """The training that the form has started."""
    wrong = answer.context["draft"].fields_with_errors if answer.context else []
    assert answer.status_code == 302, {one.html_name: one.errors for one in wrong}
    return TrainingPipeline.objects.first()


def test_the_steps_start_a_pipeline_with_its_job_and_model(bob):
    answer = bob.post(TRAIN, {**FORM, "web_access": "on", "model-model_id": "digits", "labels": "team=nlp"})
    made, job = TrainingPipeline.objects.get(), Job.objects.get()
    assert answer.status_code == 302 and answer["Location"] == f"/jobs/{job.pk}/"
    assert (made.display_name, made.definition, made.model_id, made.labels) == (
        "digits", CUSTOM, "digits", {"team": "nlp"},
    )  # fmt: skip
    assert made.upload == {"displayName": "digits"} and made.job == job
    assert job.display_name == "digits-custom-job" and job.owner_name == "bob" and job.state == "QUEUED"
    assert job.spec["enableWebAccess"] is True
    assert job.spec["baseOutputDirectory"] == {"outputUriPrefix": "gs://runs/digits"}


def test_the_container_and_the_pools_are_those_of_the_form(bob):
    gpu = a_host(gpus=6).gpus.first()
    pools = {
        "pool1-on": "on", "pool1-same": "on", "pool1-replica_count": "3", "pool1-machine_type": "custom-2-4096",
        "pool1-accelerator_type": gpu.accelerator_type, "pool1-accelerator_count": "2",
    }  # fmt: skip
    started(bob.post(TRAIN, {**FORM, **pools}))
    chief, workers = Job.objects.get().spec["workerPoolSpecs"]
    assert (
        chief["containerSpec"]["imageUri"] == workers["containerSpec"]["imageUri"] == "ghcr.io/lab/train:1.2"
    )
    assert chief["containerSpec"]["args"] == ["--epochs=3"] and chief["replicaCount"] == "1"
    assert (workers["replicaCount"], workers["machineSpec"]) == (
        "3",
        {"machineType": "custom-2-4096", "acceleratorType": gpu.accelerator_type, "acceleratorCount": 2},
    )
    assert not Job.objects.get().spec.get("enableWebAccess")


def test_a_python_package_is_a_training_container_too(bob, project):
    a_stored_file(project, name="trainer-0.1.tar.gz", bucket="code")
    package = {
        **FORM, "pool0-kind": "package", "pool0-packages": "gs://code/trainer-0.1.tar.gz",
        "pool0-module": "trainer.task", "pool0-executor": "host", "model-leaves": "nothing",
        "base_output_directory": "",
    }  # fmt: skip
    made = started(bob.post(TRAIN, package))
    assert made.upload is None and made.job.spec["workerPoolSpecs"][0]["pythonPackageSpec"] == {
        "executorImageUri": "host",
        "packageUris": ["gs://code/trainer-0.1.tar.gz"],
        "pythonModule": "trainer.task",
        "args": ["--epochs=3"],
    }


def test_a_version_is_added_to_a_model_that_exists(bob, cast, project):
    a_pipeline(a_job(project, cast.bob, state="SUCCEEDED"), "digits")
    assert '<option value="digits">' in text_of(bob.get(TRAIN))
    refused = text_of(bob.post(TRAIN, {**FORM, "model-leaves": "version"}))
    assert "Model that gets a version is required." in refused
    refused = text_of(bob.post(TRAIN, {**FORM, "model-leaves": "version", "model-parent": "letters"}))
    assert "There is no model letters in project default." in refused
    known = {"model-leaves": "version", "model-parent": "digits", "model-description": "with noise"}
    assert bob.post(TRAIN, {**FORM, **known}).status_code == 302
    made = TrainingPipeline.objects.first()
    assert (made.parent_model, made.model_id) == ("digits", "")
    assert made.upload == {"displayName": "digits", "versionDescription": "with noise"}
    taken = text_of(bob.post(TRAIN, {**FORM, "model-model_id": "digits", "request_id": "form-2"}))
    assert "Model digits exists already." in taken and RegisteredModel.objects.count() == 1


@pytest.mark.parametrize(
    ("changes", "says", "field"),
    [
        (
            {"model-dataset": "projects/p/datasets/7"},
            "tell the training code where the data is",
            "model-dataset",
        ),
        ({"model-method": "automl"}, "AutoML is not supported: choose “Custom training”", "model-method"),
        ({"base_output_directory": ""}, "The output directory is required", "base_output_directory"),
        ({"pool0-image": ""}, "Image is required.", "pool0-image"),
        ({"display_name": ""}, "Name is required.", "display_name"),
        ({"pool0-replica_count": "2"}, "must be 1", "pool0-replica_count"),
        ({"model-model_id": "Digits"}, "Model ID must be 1 to 63 lowercase letters", "model-model_id"),
    ],
)
def test_what_is_refused_is_said_at_its_field(bob, changes, says, field):
    """And what was typed stays."""
    answer = bob.post(TRAIN, {**FORM, "pool0-env-name": "A", "pool0-env-value": "kept", **changes})
    text = text_of(answer)
    assert says in text and not Job.objects.exists()
    draft = answer.context["draft"]
    assert field in [one.html_name for one in draft.fields_with_errors]
    assert 'value="--epochs=3"' in text or "--epochs=3</textarea>" in text


def test_all_errors_of_pipeline_and_job_are_shown_at_once(bob):
    answer = bob.post(TRAIN, {**FORM, "pool0-image": "", "base_output_directory": "", "display_name": ""})
    found = {one.html_name for one in answer.context["draft"].fields_with_errors}
    assert found == {"pool0-image", "base_output_directory", "display_name"}


def test_the_summary_follows_and_shows_the_same_training_as_programs(bob):
    seen = bob.post(f"{TRAIN}/summary", {**FORM, "model-model_id": "digits"}, headers=HTMX)
    text = text_of(seen)
    assert (
        "trainingPipelines" in text
        and "PipelineServiceClient" in text
        and "gcloud" not in text.split("SDK")[0]
    )
    codes = {code.name: code.text for code in seen.context["codes"]}
    assert list(codes) == ["JSON", "curl", "SDK"]
    assert '"modelId": "digits"' in codes["JSON"] and '"trainingTaskInputs"' in codes["JSON"]
    missing = text_of(bob.post(f"{TRAIN}/summary", {**FORM, "pool0-image": ""}, headers=HTMX))
    assert "Image is required." in missing


def test_a_question_whether_it_would_start_starts_nothing(bob):
    on_host = {**FORM, "pool0-kind": "bash", "pool0-program": "true", "action": "check"}
    assert bob.post(TRAIN, on_host).context["preview"].headline in text_of(bob.post(TRAIN, on_host))
    wrong = bob.post(TRAIN, {**on_host, "pool0-program": ""})
    assert wrong.context["preview"] is None and "Program is required." in text_of(wrong)
    assert not Job.objects.exists()


MODELS = [
    ({"model-model_id": "Digits"}, "Model ID must be 1 to 63 lowercase letters", "model-model_id"),
    ({"model-model_id": "taken"}, "Model taken exists already.", "model-model_id"),
    (
        {"model-leaves": "version", "model-parent": "letters"},
        "There is no model letters in project default.",
        "model-parent",
    ),
    ({"base_output_directory": ""}, "The output directory is required", "base_output_directory"),
]


@pytest.mark.parametrize(("changes", "says", "field"), MODELS)
def test_whether_it_would_start_depends_on_the_model_too(bob, cast, project, changes, says, field):
    """So does the summary that follows the form."""
    a_pipeline(a_job(project, cast.bob, state="SUCCEEDED"), "taken")
    form = {**FORM, "pool0-kind": "bash", "pool0-program": "true", **changes}
    answer = bob.post(TRAIN, {**form, "action": "check"})
    assert answer.context["preview"] is None
    assert [one.html_name for one in answer.context["draft"].fields_with_errors] == [field]
    text = text_of(bob.post(f"{TRAIN}/summary", form, headers=HTMX))
    assert "Still to be done" in text and says in text
    assert Job.objects.count() == 1


def test_what_is_wrong_with_model_and_job_is_asked_for_at_once(bob):
    """Also where Django refuses a field before either of them is read."""
    wrong = {"pool0-image": "", "base_output_directory": "", "model-model_id": "Digits"}
    for more in ({"action": "check"}, {"timeout": "soon"}):
        answer = bob.post(TRAIN, {**FORM, **wrong, **more})
        found = {one.html_name for one in answer.context["draft"].fields_with_errors}
        assert found == {"pool0-image", "base_output_directory", "model-model_id"} | (
            more.keys() - {"action"}
        )


def test_code_that_cannot_be_brought_would_not_start(bob):
    on_host = {**FORM, "pool0-kind": "bash", "pool0-program": "true", "action": "check"}
    answer = bob.post(TRAIN, {**on_host, "code-source": "stored", "code-stored": 64 * "a"})
    assert [one.html_name for one in answer.context["draft"].fields_with_errors] == ["code-stored"]
    assert answer.context["preview"] is None


def test_the_same_form_sent_twice_starts_one_training_and_a_changed_one_another(bob):
    for _ in range(2):
        bob.post(TRAIN, FORM)
    assert TrainingPipeline.objects.count() == 1
    bob.post(TRAIN, {**FORM, "display_name": "letters"})
    assert TrainingPipeline.objects.count() == 2


def test_values_of_secrets_do_not_come_back(bob):
    secret = {"pool0-env-name": "HF_TOKEN", "pool0-env-kind": "secret", "pool0-env-value": "hf_canary"}
    assert "hf_canary" not in text_of(bob.post(TRAIN, {**FORM, **secret, "display_name": ""}))
    bob.post(TRAIN, {**FORM, **secret})
    assert "hf_canary" not in str(TrainingPipeline.objects.get().inputs)


def test_the_lists_lead_to_the_page_those_who_may_start_a_training(browser, cast, project):
    for page in ("/jobs/pipelines/", "/jobs/models/"):
        assert f'href="{TRAIN}"' in text_of(browser("bob").get(page))
        assert f'href="{TRAIN}"' not in text_of(browser("vera").get(page))


def test_an_archive_of_code_is_uploaded_without_scripts_and_trains(bob):
    def upload(name):
        return bob.post(f"{TRAIN}/code", {**FORM, "code-file": SimpleUploadedFile(name, b"code")})

    page = bob.get(TRAIN).content.decode()
    assert f'formaction="{TRAIN}/code"' in page and "/storage/code" in page
    refused = upload("train.py")
    assert "Choose a tar or zip file" in text_of(refused, 400) and not Artifact.objects.exists()
    draft = upload("code.tar.gz").context["draft"]
    stored = Artifact.objects.get()
    assert draft.code["stored"].value() == stored.sha256 and draft.model["leaves"].value() == "model"
    assert draft.job["base_output_directory"].value() == "gs://runs/digits"
    code = {"code-source": "stored", "code-stored": stored.sha256}
    started(bob.post(TRAIN, {**FORM, **code}))
    (pool,) = Job.objects.get().spec["workerPoolSpecs"]
    assert pool["trainyard"] == {"code": {"artifact": stored.sha256}}


SAVE = {**FORM, "action": "template", "template_name": "nightly", "template_of": "me"}


def test_the_job_of_the_form_is_saved_as_a_template_and_one_begins_the_form(bob):
    text = text_of(bob.post(TRAIN, SAVE))
    assert "Saved as the template nightly." in text and 'value="digits"' in text
    row = JobTemplate.objects.get()
    assert row.document["displayName"] == "digits" and not TrainingPipeline.objects.exists()
    assert f'href="{TRAIN}?template={row.pk}"' in text_of(bob.get("/jobs/templates/"))
    draft = bob.get(f"{TRAIN}?template={row.pk}").context["draft"]
    assert draft.pools[0]["image"].value() == "ghcr.io/lab/train:1.2"
    assert draft.job["base_output_directory"].value() == "gs://runs/digits"
    assert bob.get(f"{TRAIN}?template=x").status_code == 404
    assert "The name of a template must be" in text_of(bob.post(TRAIN, {**SAVE, "template_name": "a/b"}))


def test_a_template_keeps_its_kind_of_program_and_one_of_others_is_not_found(bob, browser):
    bob.post("/jobs/new", {**SAVE, "pool0-kind": "bash", "pool0-program": "python3 train.py"})
    row = JobTemplate.objects.get()
    draft = bob.get(f"{TRAIN}?template={row.pk}").context["draft"]
    assert (draft.pools[0]["kind"].value(), draft.pools[0]["program"].value()) == ("bash", "python3 train.py")
    assert browser("bella").get(f"{TRAIN}?template={row.pk}").status_code == 404


def test_a_template_whose_pools_bring_different_code_opens_in_the_new_job_form(bob):
    bob.post("/jobs/new", {**SAVE, "pool0-kind": "bash", "pool0-program": "a"})
    row = JobTemplate.objects.get()
    (pool,) = row.document["jobSpec"]["workerPoolSpecs"]
    coded = {**pool, "trainyard": {"code": {"artifact": 64 * "a"}}}
    row.document["jobSpec"]["workerPoolSpecs"] = [coded, pool]
    row.save()
    answer = bob.get(f"{TRAIN}?template={row.pk}", follow=True)
    assert answer.redirect_chain == [(f"/jobs/new?template={row.pk}", 302)]
    assert "The pools of nightly bring different code" in text_of(answer)
