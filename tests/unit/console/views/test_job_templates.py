"""Templates of jobs: saved from the form, listed, used, replaced, deleted; by pages and by REST."""

from __future__ import annotations

import pytest

from agents.infra.refusals import Refused
from jobs.models import AuditEntry, Job, JobTemplate
from jobs.projects import job_templates
from tests.unit.console.api.conftest import script
from tests.unit.console.views.example_rows import a_template, document
from tests.unit.console.views.test_new_job import FORM, SECRET_ROWS, posted

__all__ = ["script"]

pytestmark = pytest.mark.django_db
SAVE = {**FORM, "action": "template", "template_name": "nightly", "template_of": "me"}
P, OWN = "/api/v1/projects/default/templates", "/api/v1/templates"


def test_a_form_is_saved_listed_used_replaced_and_deleted(browser, cast, project):
    bob = browser("bob")
    answer = bob.post("/jobs/new", SAVE)
    assert "Saved as the template nightly." in answer.content.decode() and "mnist" in answer.content.decode()
    row = JobTemplate.objects.get()
    assert (row.user, row.project, row.location_name) == (cast.bob, None, "default")
    shown = bob.get(f"/jobs/new?template={row.pk}")
    assert "python3 train.py" in shown.content.decode() and 'value="nightly"' in shown.content.decode()
    assert bob.post("/jobs/new", dict(posted(shown.context["draft"]).lists())).status_code == 302
    assert Job.objects.get().display_name == "mnist"
    again = bob.post("/jobs/new", {**SAVE, "display_name": "changed"})
    assert "The template nightly is replaced." in again.content.decode()
    assert JobTemplate.objects.get().document["displayName"] == "changed"
    assert "nightly" in bob.get("/jobs/templates/").content.decode()
    bob.post(f"/jobs/templates/{row.pk}/delete")
    assert not JobTemplate.objects.exists()
    acts = (
        AuditEntry.objects.filter(subject_kind="job template").order_by("id").values_list("what", flat=True)
    )
    assert list(acts) == ["template.make", "template.change", "template.remove"]


def test_a_persons_templates_are_theirs_and_a_projects_are_for_its_submitters(browser, cast, project):
    browser("bob").post("/jobs/new", SAVE)
    browser("bob").post("/jobs/new", {**SAVE, "template_name": "shared", "template_of": "project"})
    mine, shared = JobTemplate.objects.order_by("name")
    for who, seen in (("bella", [shared]), ("root", [shared]), ("charlie", [])):
        other = browser(who)
        assert other.get("/jobs/templates/").context["templates"] == seen
        assert other.get(f"/jobs/new?template={mine.pk}").status_code == 404
        assert other.post(f"/jobs/templates/{mine.pk}/delete").status_code == 404
        assert other.get(f"/jobs/new?template={shared.pk}").status_code == (200 if seen else 404)
    assert browser("bob").get("/jobs/new?template=x").status_code == 404


def test_many_templates_have_several_pages(browser, cast):
    for number in range(51):
        a_template(cast.bob, f"own {number:02}")
    first = browser("bob").get("/jobs/templates/").text
    assert "own 00" in first and "own 50" not in first and 'href="/jobs/templates/?page=2"' in first
    second = browser("bob").get("/jobs/templates/?page=2").text
    assert "own 50" in second and "own 49" not in second and 'href="/jobs/templates/?page=1"' in second


def test_what_is_no_job_is_no_template_and_a_name_can_be_refused(browser):
    bob = browser("bob")
    assert "Name is required." in bob.post("/jobs/new", {**SAVE, "display_name": ""}).content.decode()
    for name in ("", "a/b", "x" * 101):
        page = bob.post("/jobs/new", {**SAVE, "template_name": name}).content.decode()
        assert "The name of a template must be" in page and "python3 train.py" in page
    assert not JobTemplate.objects.exists()


TRAIN = {"model-dataset": "none", "model-method": "custom", "model-leaves": "nothing"}


@pytest.mark.parametrize(("page", "more"), [("/jobs/new", {}), ("/jobs/pipelines/new", TRAIN)])
@pytest.mark.parametrize(
    "change",
    [{"display_name": ""}, {"pool0-replica_count": "2"}, {"template_name": "a/b"}, {"action": "check"}],
    ids=["an error of a field", "an error of the job", "a refused name", "a question whether it would start"],
)
def test_the_name_that_was_typed_stays(browser, page, more, change):
    form = {**SAVE, **more, "template_of": "project", **change}
    shown = browser("bob").post(page, form).content.decode()
    fold = shown[: shown.index('id="template-name"')].rpartition("<details")[2]
    assert f'value="{form["template_name"]}"' in shown.partition('id="template-name"')[2].partition(">")[0]
    assert '<option value="project" selected>' in shown and not JobTemplate.objects.exists()
    assert (" open" in fold.partition(">")[0]) == (form["action"] == "template")


@pytest.mark.parametrize(("page", "more"), [("/jobs/new", {}), ("/jobs/pipelines/new", TRAIN)])
def test_after_the_question_about_a_shell_the_template_is_saved(browser, page, more):
    bob = browser("bob")
    asked = {**SAVE, **more, "pool0-kind": "argv", "pool0-program": "a | b"}
    answer = bob.post(page, asked)
    assert answer.context["draft"].pools[0].asks_about_shell and not JobTemplate.objects.exists()
    shown = answer.context
    fields = {"then": shown["action"], "template_name": shown["template_name"], "template_of": "me"}
    sent = {**asked, **fields, "action": "", "pool0-by": "bash"}
    assert "Saved as the template nightly." in bob.post(page, sent).content.decode()
    assert JobTemplate.objects.get().name == "nightly"


def test_a_template_has_the_names_of_secrets_and_no_values(browser):
    bob = browser("bob")
    bob.post("/jobs/new", {**SAVE, **SECRET_ROWS})
    row = JobTemplate.objects.get()
    env = row.document["jobSpec"]["workerPoolSpecs"][0]["containerSpec"]["env"]
    assert env[0] == {"name": "HF_TOKEN", "value": "", "secret": True} and "hf_very-secret" not in str(
        row.document
    )
    copy = posted(bob.get(f"/jobs/new?template={row.pk}").context["draft"])
    page = bob.post("/jobs/new", dict(copy.lists())).content.decode()
    assert "type the value of HF_TOKEN" in page and not Job.objects.exists()


def test_rest_saves_lists_reads_and_deletes(script, project):
    bob, json = script("bob"), {"content_type": "application/json"}
    made = bob.post(P, {"name": "nightly", "customJob": document("one")}, **json)
    assert made.status_code == 201 and made.json()["updatedBy"] == "bob"
    assert bob.put(f"{P}/nightly", {"customJob": document("two")}, **json).status_code == 200
    assert [row["customJob"]["displayName"] for row in script("bella").get(P).json()["templates"]] == ["two"]
    assert bob.get(f"{P}/nightly").json()["location"] == "default"
    assert bob.get(OWN).json() == {"templates": []} and script("vera").get(P).status_code == 403
    assert bob.put(f"{OWN}/mine", {"customJob": document()}, **json).status_code == 201
    assert script("bella").get(f"{OWN}/mine").status_code == 404
    refused = bob.put(f"{P}/nightly", {"customJob": {"displayName": "x"}}, **json)
    assert refused.status_code == 400 and "job_spec" in refused.content.decode()
    assert bob.put(f"{P}/nightly", {"customJob": document(), "owner": 1}, **json).status_code == 400
    assert bob.delete(f"{P}/nightly").status_code == 200 and bob.delete(f"{P}/nightly").status_code == 404


def test_a_project_has_a_limited_number_of_templates(project, monkeypatch):
    monkeypatch.setattr(job_templates, "MAX_TEMPLATES", 2)
    a_template(project, "one"), a_template(project, "two"), a_template(project, "two")
    with pytest.raises(Refused, match="2 templates already"):
        a_template(project, "three")
