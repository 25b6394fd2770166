"""Locations over REST."""

from __future__ import annotations

import json

import pytest
from django.utils import timezone

from jobs.maintenance import location_bindings
from jobs.models import Job, LocationBinding
from tests.unit.console.api.conftest import JOBS
from tests.unit.console.views.example_rows import a_host, document

URL = "/api/v1/locations/default"


def patch(client, body):
    return client.patch(URL, json.dumps(body), content_type="application/json")


def test_an_admin_binds_and_unbinds_a_location(script, project):
    root = script("root")
    a_host()
    served = {"name": "default", "title": "Default", "hosts": 1, "allProjects": False}
    assert patch(root, {"projects": ["elsewhere"]}).json() == {**served, "projects": ["elsewhere"]}
    assert root.get(URL).json()["projects"] == ["elsewhere"]
    assert patch(root, {"allProjects": True}).json() == {**served, "allProjects": True, "projects": []}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, '"allProjects": true'),
        ({"projects": []}, '"allProjects": true'),
        ({"projects": "elsewhere"}, "list of names"),
        ({"projects": [1]}, "list of names"),
        ({"projects": ["moon"]}, "There is no project moon."),
        ({"projects": ["elsewhere"], "allProjects": True}, "list of names"),
    ],
)
def test_an_unclear_wish_changes_nothing(script, project, body, words):
    answer = patch(script("root"), body)
    assert answer.status_code == 400 and words in answer.json()["error"]["message"]
    assert not LocationBinding.objects.exists()


def test_an_admin_says_which_directories_the_hosts_share(script, project):
    root = script("root")
    a_host()
    told = {"models": "/data/models", "*": "/data/buckets"}
    found = patch(root, {"storage": told}).json()
    assert found["storage"] == told and found["allProjects"] is True, "the binding stays"
    for wrong in ({"models": "relative"}, {"models": 1}, ["models"], {"X": "/data"}):
        assert patch(root, {"storage": wrong}).status_code == 400
    assert root.get(URL).json()["storage"] == told
    assert "storage" not in patch(root, {"storage": {}}).json()


def test_an_admin_says_which_images_are_used_and_the_submit_names_this_cure(script, project):
    root, bob = script("root"), script("bob")
    a_host()
    body = document()
    container = body["jobSpec"]["workerPoolSpecs"][0]["containerSpec"]
    container["imageUri"] = "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-17.py310:latest"
    refused = bob.post(JOBS, json.dumps(body), content_type="application/json")
    (violation,) = refused.json()["error"]["details"][0]["fieldViolations"]
    assert refused.status_code == 400 and violation["field"].endswith("container_spec.image_uri")
    assert "Hosts → Locations, or with: trainyard location alias default" in violation["description"]
    told = {"us-docker.pkg.dev/vertex-ai/*": "host", "ghcr.io/old/train": "ghcr.io/lab/train:1"}
    found = patch(root, {"images": told}).json()
    assert found["images"] == told and found["allProjects"] is True, "the binding stays"
    for wrong in ({"*": "host"}, {"ghcr.io/a": 1}, ["ghcr.io/a"], {"ghcr.io/a": "b c"}):
        assert patch(root, {"images": wrong}).status_code == 400
    assert patch(bob, {"images": {}}).status_code == 403
    assert bob.get(URL).json()["images"] == told
    made = bob.post(JOBS, json.dumps(body), content_type="application/json")
    assert made.status_code == 200, made.content
    job = bob.get(f"/api/v1/jobs/{Job.objects.get().pk}").json()
    assert job["imagesUsed"] == {"workerpool0": "host"}
    assert "images" not in patch(root, {"images": {}}).json()


def test_a_job_for_a_location_of_others_is_refused_at_the_location(script, project):
    a_host(gpus=1)
    location_bindings.bind("default", ["elsewhere"], "root", timezone.now())
    bob = script("bob")
    answer = bob.post(JOBS, json.dumps(document()), content_type="application/json")
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert "Location default serves other projects" in error["message"]
    assert error["details"][0]["fieldViolations"][0]["field"] == "location"


def test_hosts_machine_types_and_the_location_itself_are_absent_for_others(script, project):
    host = a_host()
    location_bindings.bind("default", ["elsewhere"], "root", timezone.now())
    bob, charlie = script("bob"), script("charlie")
    for url in (
        URL,
        f"/api/v1/hosts/{host.name}",
        "/api/v1/machineTypes",
        "/api/v1/machineTypes?location=asia",
    ):
        assert (bob.get(url).status_code, charlie.get(url).status_code) == (404, 200), url
    assert bob.get("/api/v1/locations").json() == {"locations": []}
    assert bob.get("/api/v1/hosts").json() == {"hosts": []}
    assert len(charlie.get("/api/v1/hosts").json()["hosts"]) == 1
