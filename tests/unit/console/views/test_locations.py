"""Locations on the pages: an admin binds one to projects; for members of other projects its hosts do not exist."""

from __future__ import annotations

import json

import pytest
from django.utils import timezone

from agents.models import Host, Location
from jobs.maintenance import location_bindings
from jobs.models import AuditEntry, ImageAlias, Job, LocationBinding
from tests.unit.console.views.example_rows import a_host, a_job, a_machine_type, document, one_line
from tests.unit.console.views.test_new_job import FORM


@pytest.fixture
def lab(project, cast):
    """A host in the location annex, which serves the project elsewhere only (its admin is Charlie)."""
    location = Location.objects.create(name="annex")
    host = a_host("annex-1", gpus=2, location=location)
    a_host("open-1", gpus=1)
    location_bindings.bind("annex", ["elsewhere"], "root", timezone.now())
    return host


def test_an_admin_binds_a_location_and_opens_it_again(browser, project):
    root = browser("root")
    a_host()
    url = "/locations/default/projects"
    page = root.post(url, {"projects": ["elsewhere"]}, follow=True).content.decode()
    assert "Location default serves elsewhere now." in page
    assert [row.project.name for row in LocationBinding.objects.all()] == ["elsewhere"]
    page = root.post(url, {}, follow=True).content.decode()
    assert "Select the projects that the location serves, or all projects." in page
    assert LocationBinding.objects.exists(), "nothing selected does not mean all"
    root.post(url, {"projects": ["moon"]}, follow=True)
    assert LocationBinding.objects.get().project.name == "elsewhere"
    page = root.post(url, {"all_projects": "on"}, follow=True).content.decode()
    assert "Location default serves all projects now." in page
    assert not LocationBinding.objects.exists()
    assert AuditEntry.objects.filter(what="location.bind", actor="root").count() == 2
    assert "Projects of a location" in root.get("/audit/").content.decode()


def test_an_admin_adds_and_deletes_an_alias_of_images(browser, project):
    root, bob = browser("root"), browser("bob")
    a_host()
    url, every = "/locations/default/images", "us-docker.pkg.dev/vertex-ai/*"
    page = root.post(url, {"name": every, "image": " host "}, follow=True).content.decode()
    assert "The images of default are changed." in page and f"{every} → host" in page
    assert f'name="name" value="{every}"' in page and 'name="delete"' in page
    seen = bob.get("/locations/").content.decode()
    assert f"{every} → host" in seen and 'name="delete"' not in seen, "who may look is shown it"
    page = root.post(url, {"name": every + ":1", "image": "host"}, follow=True).content.decode()
    assert "without its tag" in one_line(page)
    page = root.post(url, {"name": every, "delete": "1"}, follow=True).content.decode()
    assert f"{every} → host" not in page and not ImageAlias.objects.exists()
    page = root.post(url, {"name": every, "delete": "1"}, follow=True).content.decode()
    assert "has no alias" in page
    assert AuditEntry.objects.filter(what="location.images", actor="root").count() == 2
    assert "Images of a location" in root.get("/audit/").content.decode()


def test_aliases_of_a_location_of_others_are_shown_to_nobody_else(browser, lab):
    ImageAlias.objects.create(location=lab.location, name="ghcr.io/hidden/*", image="host")
    assert b"ghcr.io/hidden" in browser("charlie").get("/locations/").content
    assert b"ghcr.io/hidden" not in browser("bob").get("/locations/").content


def test_the_page_of_a_job_tells_the_image_that_is_used(browser, project, cast):
    job = a_job(project, cast.bob)
    job.spec["workerPoolSpecs"][0]["containerSpec"]["imageUri"] = "gcr.io/cloud-aiplatform/x"
    job.resolved = {"pools": {"0": {"alias": "ghcr.io/lab/torch:2"}}, "index": ""}
    job.save()
    page = browser("bob").get(f"/jobs/{job.pk}/spec").content.decode()
    assert "gcr.io/cloud-aiplatform/x → ghcr.io/lab/torch:2" in page


def test_a_location_of_others_does_not_exist_for_a_member(browser, lab):
    bob, charlie, root = browser("bob"), browser("charlie"), browser("root")
    for client, sees in ((bob, False), (charlie, True), (root, True)):
        for url in ("/hosts/", "/hosts/gpus", "/locations/", "/jobs/new"):
            assert (b"annex" in client.get(url).content) is sees, (url, sees)
        assert client.get(f"/hosts/{lab.pk}/").status_code == (200 if sees else 404)
        assert b"open-1" in client.get("/hosts/").content


def test_who_else_is_served_is_shown_to_nobody_but_admins(browser, cast, lab, project):
    location_bindings.bind("annex", ["default", "elsewhere"], "root", timezone.now())
    assert "elsewhere" not in browser("bob").get("/locations/").content.decode()
    assert "default, elsewhere" in browser("root").get("/locations/").content.decode()


def test_machine_types_and_free_gpus_of_others_are_not_offered(browser, lab):
    a_machine_type("annex-special", location=lab.location)
    bob, charlie = browser("bob"), browser("charlie")
    page = bob.get("/machines/?location=annex")
    assert page.context["location"] == "default"
    assert "annex-special" not in page.content.decode()
    assert "annex-special" in charlie.get("/machines/?location=annex").content.decode()
    assert [(offer.accelerator_type, offer.total) for offer in bob.get("/jobs/new").context["gpus"]] == [
        ("NVIDIA_L4", 1)
    ]
    assert [offer.total for offer in charlie.get("/jobs/new").context["gpus"]] == [1]
    there = charlie.post("/jobs/new/summary", {"project": "elsewhere", "location": "annex"}).context
    assert [offer.total for offer in there["gpus"]] == [2]


def test_a_member_without_any_location_sees_no_machine_type(browser, lab, project):
    location_bindings.bind("default", ["elsewhere"], "root", timezone.now())
    page = browser("bob").get("/machines/")
    assert page.status_code == 200 and page.context["locations"] == []


def test_the_form_refuses_at_the_location_and_the_preview_says_why(browser, cast, lab):
    bob = browser("bob")
    location_bindings.bind("default", ["elsewhere"], "root", timezone.now())
    words = "Location default serves other projects, and not default."
    for action in ("submit", "check"):
        answer = bob.post("/jobs/new", {**FORM, "action": action})
        assert words in one_line(answer.context["draft"].job.errors["location"][0]), action
    assert not Job.objects.exists()


def test_the_preview_of_a_job_refuses_where_the_location_was_taken_away_meanwhile(
    browser, cast, lab, project
):
    """The form's own choices let the person choose a location that serves another project of theirs."""
    root = browser("root")
    typed = {**FORM, "location": "annex", "action": "check"}
    draft = root.post("/jobs/new", typed).context["draft"]
    assert "Location annex serves other projects" in one_line(draft.job.errors["location"][0])
    assert "draft" not in (
        root.post("/jobs/new", {**typed, "project": "elsewhere"}).context["draft"].job.errors
    )


HIDDEN = ("annex-special", "NVIDIA_H200_141GB", "fits on 1 of 1 hosts now")


@pytest.fixture
def special(lab):
    """What only the annex has: a machine type and a GPU type."""
    small = {"cpus": 2, "memory_mb": 4096, "accelerator_type": "", "accelerator_count": 0}
    a_machine_type("annex-special", location=lab.location, **small)
    lab.gpus.update(accelerator_type="NVIDIA_H200_141GB")
    Host.objects.exclude(pk=lab.pk).delete()
    return lab


def wrong_gpu(action):
    return {
        **FORM,
        "action": action,
        "pool0-accelerator_type": "NVIDIA_H2",
        "pool0-accelerator_count": "1",
    }


@pytest.mark.parametrize("action", ["submit", "check", "json", "form"])
def test_a_form_with_a_location_of_others_is_shown_without_what_that_has(browser, special, action):
    sent = {**wrong_gpu(action), "location": "annex"}
    bob, charlie = browser("bob"), browser("charlie")
    page = bob.post("/jobs/new", sent).content.decode()
    assert "not one of the available choices" in page and not [word for word in HIDDEN if word in page]
    # Who may use the location is shown all of it.
    typed = {**FORM, "project": "elsewhere", "location": "annex", "display_name": "", "action": "submit"}
    page = charlie.post("/jobs/new", typed).content.decode()
    assert "annex-special" in page and "fits on 1 of 1 hosts now" in page


@pytest.mark.parametrize("named", ["", "mars", "default"])
@pytest.mark.parametrize("action", ["submit", "check", "json", "form"])
def test_a_name_that_means_a_default_location_of_others_shows_nothing_of_it(browser, special, named, action):
    Location.objects.filter(name="default").delete()
    Location.objects.filter(name="annex").update(name="default")
    bob = browser("bob")
    page = bob.post("/jobs/new", {**wrong_gpu(action), "location": named}).content.decode()
    assert not [word for word in HIDDEN if word in page]
    assert "annex-special" not in bob.get("/jobs/new").content.decode()
    asked = document()
    asked["jobSpec"]["workerPoolSpecs"][0]["machineSpec"] = {
        "acceleratorType": "NVIDIA_H2",
        "acceleratorCount": 1,
    }
    text = json.dumps(asked)
    sent = {"mode": "json", "project": "default", "location": named, "text": text, "action": action}
    page = bob.post("/jobs/new", sent).content.decode()
    assert "fits on" not in page and "NVIDIA_H200_141GB" not in page
