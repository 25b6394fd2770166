"""Forms offer Reduction Server in the third pool, keep its settings, and give reducers no code of the job."""

from __future__ import annotations

import json
import re

import pytest

from jobs.artifacts import artifacts
from jobs.models import Job, JobTemplate
from tests.unit.console.views.example_rows import a_host, a_stored_file, a_template, one_line
from tests.unit.console.views.test_new_job import FORM, posted

pytestmark = pytest.mark.django_db

TRAIN, NEW = "/jobs/pipelines/new", "/jobs/new"
IMAGE = "us-docker.pkg.dev/vertex-ai-restricted/training/reductionserver:latest"
TRAINER = {"replicaCount": "1", "containerSpec": {"imageUri": "host", "command": ["python3", "train.py"]}}


def spec(reducers):
    workers = {**TRAINER, "replicaCount": "2"}
    return {"displayName": "sums", "jobSpec": {"workerPoolSpecs": [TRAINER, workers, reducers]}}


@pytest.fixture
def bob(browser, cast, project):
    a_host()
    return browser("bob")


def sent_from(bob, page, changes=()):
    """The job that the form of a template submits."""
    form = posted(bob.get(f"{page}?template={JobTemplate.objects.get().pk}").context["draft"])
    model = {"model-leaves": "nothing", "model-dataset": "none", "model-method": "custom"}
    answer = bob.post(page, {**dict(form.lists()), **model, **dict(changes)})
    wrong = answer.context["draft"].fields_with_errors if answer.context else []
    assert answer.status_code == 302, {one.html_name: one.errors for one in wrong}
    return Job.objects.get().spec["workerPoolSpecs"]


@pytest.mark.parametrize("page", [NEW, TRAIN])
@pytest.mark.parametrize(
    "own",
    [{"wire": "bf16"}, {"runtime": "reduction-server", "wire": "bf16"}, {"runtime": "reduction-server"}],
)
def test_a_template_keeps_how_reducers_are_asked_for_and_what_they_send(bob, project, page, own):
    a_template(project, job=spec({"containerSpec": {"imageUri": IMAGE}, "trainyard": own}))
    trainers, workers, reducers = sent_from(bob, page)
    assert reducers["trainyard"] == own and reducers["containerSpec"] == {"imageUri": IMAGE}
    assert "trainyard" not in trainers and "trainyard" not in workers


@pytest.mark.parametrize("page", [NEW, TRAIN])
@pytest.mark.parametrize("command", [[], ["/opt/venv/bin/python"]])
def test_reducers_that_name_no_image_are_shown_by_that_of_vertex(bob, project, page, command):
    own = {"runtime": "reduction-server", "wire": "bf16"}
    named = {"containerSpec": {"command": command}} if command else {}
    a_template(project, job=spec({**named, "trainyard": own}))
    reducers = sent_from(bob, page)[2]
    assert reducers["trainyard"] == own and reducers["containerSpec"]["imageUri"] == IMAGE
    assert reducers["containerSpec"].get("command", []) == command


def test_a_pool_that_is_given_another_program_is_no_longer_of_reducers(bob, project):
    own = {"runtime": "reduction-server", "wire": "bf16"}
    a_template(project, job=spec({"trainyard": own}))
    other = {"pool2-kind": "bash", "pool2-program": "./serve"}
    pool = sent_from(bob, NEW, other)[2]
    assert "trainyard" not in pool and pool["containerSpec"]["command"] == ["bash", "-c", "./serve"]


@pytest.mark.parametrize("page", [NEW, TRAIN])
def test_the_third_pool_offers_the_images_of_the_regions_the_machine_type_and_bf16(bob, page):
    """Rows S4-32 and S4-36."""
    text = one_line(bob.get(page).content.decode())
    images = text[text.index('<datalist id="reduction-images"') :].partition("</datalist>")[0]
    assert re.findall(r'value="(\w+)-docker', images) == ["us", "europe", "asia"]
    machines = text[text.index('<datalist id="machine-types-of-reducers"') :]
    assert re.search(r'value="([^"]+)"', machines)[1] == "n1-highcpu-16"
    assert re.findall(r'name="(pool\d)-wire"', text) == ["pool2"]
    fields = {
        name: re.search(rf'<input [^>]*name="pool2-{name}"[^>]*>', text)[0]
        for name in ("image", "machine_type")
    }
    assert 'list="reduction-images"' in fields["image"]
    assert 'list="machine-types-of-reducers"' in fields["machine_type"]
    assert "Recommended for Reduction Server: n1-highcpu-16." in text


@pytest.mark.parametrize(("before", "chosen"), [({}, "bf16"), ({"trainyard": {"wire": "bf16"}}, "")])
def test_bf16_is_chosen_and_taken_back(bob, project, before, chosen):
    a_template(project, job=spec({"containerSpec": {"imageUri": IMAGE}, **before}))
    reducers = sent_from(bob, NEW, {"pool2-wire": chosen})[2]
    assert reducers.get("trainyard", {}) == ({"wire": chosen} if chosen else {})


def test_bf16_is_refused_beside_another_image(bob, project):
    a_template(project, job=spec({"containerSpec": {"imageUri": IMAGE}, "trainyard": {"wire": "bf16"}}))
    form = posted(bob.get(f"{NEW}?template={JobTemplate.objects.get().pk}").context["draft"])
    answer = bob.post(NEW, {**dict(form.lists()), "pool2-image": "ghcr.io/lab/serve:1"})
    assert "for Reduction Server only" in str(answer.context["draft"].pools[2].errors["wire"])


PACKAGE = "gs://lab-files/trainer-1.0.tar.gz"
GIT = {"git": {"url": "https://git.example.com/lab/train.git", "revision": "main"}, "directory": "src"}
PACKAGED = {"executorImageUri": "host", "packageUris": [PACKAGE], "pythonModule": "trainer.task"}


def coded(reducers, code):
    """Trainers of a package that bring code too, beside reducers."""
    trainer = {"pythonPackageSpec": PACKAGED, "trainyard": {"code": code}}
    document = spec(reducers)
    document["jobSpec"]["workerPoolSpecs"][:2] = [trainer, {**trainer, "replicaCount": "2"}]
    return document


@pytest.fixture
def stored(project):
    """The code that pools bring, by how the document names it."""
    a_stored_file(project, "lab-files", "trainer-1.0.tar.gz")
    artifact = artifacts.add_artifact(project, "archive", "code.tar.gz", [b"code"], "bob")
    return {"git": GIT, "archive": {"archiveUri": PACKAGE}, "folder": {"artifact": artifact.sha256}}


BY_IMAGE = {"containerSpec": {"imageUri": IMAGE}}
BY_RUNTIME = {"trainyard": {"runtime": "reduction-server", "wire": "bf16"}}


@pytest.mark.parametrize("page", [NEW, TRAIN])
@pytest.mark.parametrize("reducers", [BY_IMAGE, BY_RUNTIME])
@pytest.mark.parametrize("kind", ["git", "archive", "folder"])
def test_reducers_bring_no_code_of_the_job(bob, project, stored, page, reducers, kind):
    a_template(project, job=coded(reducers, stored[kind]))
    trainers, workers, third = sent_from(bob, page)
    assert trainers["trainyard"] == workers["trainyard"] == {"code": stored[kind]}
    assert "code" not in third.get("trainyard", {}) and third["containerSpec"]["imageUri"] == IMAGE
    brought = Job.objects.get().resolved["pools"]
    assert brought["2"] == {"packages": brought["0"]["packages"]}, "reducers have the Python of the primary"


def test_code_that_is_typed_beside_reducers_is_checked_and_shown_as_json_and_as_fields_again(bob, stored):
    form = {
        **FORM,
        "code-source": "git",
        "code-git_url": GIT["git"]["url"],
        "code-git_revision": "main",
        "code-directory": "src",
        "pool2-on": "on",
        "pool2-kind": "image",
        "pool2-image": IMAGE,
        "pool2-replica_count": "2",
    }
    assert bob.post(NEW, {**form, "action": "check"}).context["preview"]
    as_json = bob.post(NEW, {**form, "action": "json"}).context["draft"]
    pools = json.loads(as_json["text"].value())["jobSpec"]["workerPoolSpecs"]
    assert [pool.get("trainyard", {}).get("code") for pool in pools] == [GIT, None, None]
    typed = {each.html_name: each.value() or "" for each in as_json}
    shown = bob.post(NEW, {**typed, "mode": "json", "action": "form"}).context["draft"]
    assert shown.mode == "form" and shown.code["git_url"].value() == GIT["git"]["url"]
    assert shown.pools[2]["image"].value() == IMAGE


def test_another_pool_without_the_code_of_the_primary_keeps_the_job_json(bob, project, stored):
    document = coded(BY_IMAGE, GIT)
    del document["jobSpec"]["workerPoolSpecs"][1]["trainyard"]
    row = a_template(project, job=document)
    assert bob.get(f"{NEW}?template={row.pk}").context["draft"].mode == "json"
