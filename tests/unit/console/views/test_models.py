"""The pages of training pipelines and of models: what they show, and who may change what."""

from __future__ import annotations

import pytest
from django.utils import timezone

from console.presenters.jobs import job_parts
from jobs.models import AuditEntry, Job, ModelVersion, RegisteredModel, TrainingPipeline
from jobs.pipelines import registry
from tests.unit.console.views.example_rows import a_job, a_pipeline, a_tuning_job, one_line

pytestmark = pytest.mark.django_db

MODEL = "/jobs/models/default/digits/"


def text_of(answer):
    assert answer.status_code == 200
    return one_line(answer.content.decode())


def entries():
    fields = ("actor", "what", "subject", "project__name", "before", "after")
    return list(AuditEntry.objects.filter(subject_kind="model").order_by("pk").values_list(*fields))


def an_ended_job(project, owner, **changes):
    return a_job(project, owner, state="SUCCEEDED", ended_at=timezone.now(), **changes)


@pytest.fixture
def two_versions(cast, project):
    """Bob's and Bella's: the default is Bob's."""
    a_pipeline(an_ended_job(project, cast.bob, name="first"), "digits")
    a_pipeline(an_ended_job(project, cast.bella, name="second"), "digits")


def test_pipelines_are_listed_with_their_state_job_and_model(browser, cast, project):
    a_pipeline(an_ended_job(project, cast.bob, name="done"), "digits")
    waiting = a_pipeline(an_ended_job(project, cast.bob, name="recording"))
    type(waiting).objects.filter(pk=waiting.pk).update(upload={"displayName": "m"})
    text = text_of(browser("vera").get("/jobs/pipelines/"))
    assert "done-pipeline" in text and "recording-pipeline" in text
    assert f'href="{MODEL}#version-1"' in text and text.count("Succeeded") == 1 and text.count("Running") == 1
    assert "done-pipeline" not in text_of(browser("charlie").get("/jobs/pipelines/"))
    assert "done-pipeline" not in text_of(browser("vera").get("/jobs/pipelines/?project=none"))


def test_a_pipeline_that_failed_says_why(browser, cast, project):
    failed = a_job(
        project,
        cast.bob,
        state="FAILED",
        ended_at=timezone.now(),
        error_code=9,
        error_message="It <b>fell</b>.",
    )
    a_pipeline(failed)
    without = a_pipeline(an_ended_job(project, cast.bob, name="best"))
    words = "No trial measured the metric."
    type(without).objects.filter(pk=without.pk).update(upload={"displayName": "m"}, without_model=words)
    text = text_of(browser("vera").get("/jobs/pipelines/"))
    assert "It &lt;b&gt;fell&lt;/b&gt;." in text and words in text and text.count("Failed") == 2


def test_models_and_their_versions_are_shown(browser, two_versions):
    listed = text_of(browser("vera").get("/jobs/models/"))
    assert f'href="{MODEL}"' in listed and "gs://staging/digits/model" in listed
    page = text_of(browser("vera").get(MODEL))
    assert "first-pipeline" in page and "second-pipeline" in page and f'action="{MODEL}' not in page
    assert browser("charlie").get(MODEL).status_code == 404
    assert "digits" not in text_of(browser("charlie").get("/jobs/models/"))


def test_a_model_a_job_and_their_pipeline_lead_to_each_other(browser, cast, project):
    job = an_ended_job(project, cast.bob, name="first")
    before = job_parts.part_stamp("job-head", job.pk)
    pipeline = a_pipeline(job, "digits")
    assert job_parts.part_stamp("job-head", job.pk) != before
    to_pipeline = f"/jobs/pipelines/?project=default&amp;before={pipeline.pk + 1}#pipeline-{pipeline.pk}"
    vera = browser("vera")
    head = text_of(vera.get(f"/jobs/{job.pk}/"))
    assert f'<a href="{to_pipeline}">first-pipeline</a>' in head
    assert f'<a href="{MODEL}#version-1">digits, 1</a>' in head
    for page in ("/jobs/models/", MODEL):
        text = text_of(vera.get(page))
        assert f'<a href="{to_pipeline}">' in text and f'<a href="/jobs/{job.pk}/">first</a>' in text
        assert f'<a href="/jobs/{job.pk}/outputs/"><code>gs://staging/digits/model</code></a>' in text
    listed = text_of(vera.get(to_pipeline.replace("&amp;", "&")))
    assert f'id="pipeline-{pipeline.pk}"' in listed and f'href="{MODEL}#version-1"' in listed
    assert vera.get(f"/jobs/{job.pk}/outputs/").status_code == 200
    # What is deleted is not linked.
    TrainingPipeline.objects.update(deleted_at=timezone.now())
    RegisteredModel.objects.update(deleted_at=timezone.now())
    head = text_of(vera.get(f"/jobs/{job.pk}/"))
    assert "first-pipeline" not in head and MODEL not in head


def test_a_tuned_model_leads_to_its_study(browser, cast, project):
    job = an_ended_job(project, cast.bob, name="best")
    study = a_tuning_job(job, display_name="search")
    pipeline = a_pipeline(job, "digits")
    TrainingPipeline.objects.update(job=None, tuning_job=study)
    vera = browser("vera")
    for page in ("/jobs/models/", MODEL):
        assert f'<a href="/studies/{study.pk}/">search</a>' in text_of(vera.get(page))
    head = text_of(vera.get(f"/studies/{study.pk}/"))
    assert f'#pipeline-{pipeline.pk}">best-pipeline</a>' in head and f'href="{MODEL}#version-1"' in head


def test_the_default_moves_and_a_version_is_deleted_by_its_owner(browser, two_versions):
    bob = browser("bob")
    assert "It is the default version" in text_of(bob.post(f"{MODEL}1/delete", follow=True))
    assert "Version 2 is the default now." in text_of(bob.post(f"{MODEL}2/default", follow=True))
    assert [one.aliases for one in ModelVersion.objects.order_by("number")] == [[], ["default"]]
    assert browser("bella").post(f"{MODEL}1/delete").status_code == 403
    assert "Version 1 is deleted." in text_of(bob.post(f"{MODEL}1/delete", follow=True))
    assert bob.post(f"{MODEL}1/default").status_code == 404
    assert "It is the only version" in text_of(browser("bella").post(f"{MODEL}2/delete", follow=True))
    assert Job.objects.count() == 2
    assert entries() == [
        ("bob", "model_version.delete", "digits@1", "default", "gs://staging/digits/model", None)
    ]


def test_a_model_is_deleted_by_whoever_may_delete_each_of_its_jobs(browser, two_versions):
    for person in ("bob", "bella", "vera"):
        assert browser(person).post(f"{MODEL}delete").status_code == 403
    assert "is deleted. Its files stay." in text_of(browser("alice").post(f"{MODEL}delete", follow=True))
    assert not RegisteredModel.objects.exists() and browser("alice").get(MODEL).status_code == 404
    page = text_of(browser("vera").get("/jobs/pipelines/"))
    assert "first-pipeline" in page and MODEL not in page
    before = {"name": "digits", "versions": 2}
    assert entries() == [("alice", "model.delete", "digits", "default", before, None)]


def test_a_model_that_two_people_delete_is_in_the_audit_once(two_versions):
    model = RegisteredModel.objects.get()
    for person in ("alice", "root"):
        registry.delete_model(model, person, timezone.now())
    assert [entry[0] for entry in entries()] == ["alice"]
    assert RegisteredModel.every.get().deleted_by == "alice"


def test_a_page_has_at_most_fifty_rows(browser, cast, project, monkeypatch, django_assert_max_num_queries):
    for number in range(5):
        a_pipeline(an_ended_job(project, cast.bob, name=f"job{number}"), f"model{number}")
    monkeypatch.setattr("console.presenters.trained_models.PAGE", 2)
    vera, address, seen = browser("vera"), "/jobs/models/", []
    with django_assert_max_num_queries(60):
        while address:
            found = vera.get(address).context["found"]
            seen += [row.model.model_id for row in found.rows]
            address = f"/jobs/models/{found.next}" if found.next else ""
    assert seen == [f"model{number}" for number in reversed(range(5))]


def test_the_default_of_many_models_is_one_query(cast, project, django_assert_num_queries):
    for number in range(3):
        a_pipeline(an_ended_job(project, cast.bob), f"model{number}")
    a_pipeline(an_ended_job(project, cast.bob), "model0")
    models = list(RegisteredModel.objects.order_by("model_id"))
    with django_assert_num_queries(1):
        found = registry.default_versions(models)
    assert [found[one.pk].number for one in models] == [1, 1, 1]
