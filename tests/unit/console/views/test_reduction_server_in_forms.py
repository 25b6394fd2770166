"""Forms keep the settings of Reduction Server, for which they have no fields."""

from __future__ import annotations

import pytest

from jobs.models import Job, JobTemplate
from tests.unit.console.views.example_rows import a_host, a_template
from tests.unit.console.views.test_new_job import posted

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
