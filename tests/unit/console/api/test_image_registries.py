"""Credentials of image registries in the REST API and on the pages: write-only, each change in the audit."""

from __future__ import annotations

import pytest

from agents.models import Location
from jobs.models import AuditEntry, RegistryCredential
from jobs.secrets import image_registries
from tests.unit.console.api.test_projects import put, violation
from tests.unit.console.views.example_rows import a_host

P = "/api/v1/projects/default/imageRegistries"
L = "/api/v1/locations/default/imageRegistries"
CANARY = "canary-51e0c7a9"
ADA = {"username": "ada", "password": CANARY}


@pytest.fixture
def location(project):
    a_host()
    return Location.objects.get(name="default")


def test_it_is_set_listed_and_deleted_and_never_read_back(script, project):
    alice = script("alice")
    made, again = put(alice, f"{P}/ghcr.io", ADA), put(alice, f"{P}/GHCR.io", ADA)
    assert (made.status_code, again.status_code) == (201, 200)
    listed = script("bob").get(P)
    assert [(row["registry"], row["updatedBy"]) for row in listed.json()["imageRegistries"]] == [
        ("ghcr.io", "alice")
    ]
    audit = alice.get("/api/v1/audit")
    assert "registry.set" in audit.content.decode()
    for answer in (made, again, listed, audit):
        assert CANARY not in answer.content.decode()
    assert alice.get(f"{P}/ghcr.io").status_code == 405
    assert image_registries.credentials(project, "default", "ghcr.io")["password"] == CANARY
    assert alice.delete(f"{P}/ghcr.io").status_code == 200 and alice.delete(f"{P}/ghcr.io").status_code == 404


def test_that_of_a_location_is_for_admins(script, location, project):
    assert put(script("alice"), f"{L}/r.lab:5000", ADA).status_code == 403
    root = script("root")
    assert put(root, f"{L}/r.lab:5000", ADA).status_code == 201
    assert root.get(L).json()["imageRegistries"][0]["registry"] == "r.lab:5000"
    assert script("alice").get(L).status_code == 403
    assert image_registries.credentials(project, "default", "r.lab:5000")["username"] == "ada"
    assert root.delete(f"{L}/r.lab:5000").status_code == 200


@pytest.mark.parametrize(
    ("registry", "body", "field"),
    [("lab", ADA, "registry"), ("ghcr.io", {"username": "a"}, "password"), ("ghcr.io", {**ADA, "x": 1}, "x")],
)
def test_what_is_wrong_is_named(script, registry, body, field):
    refused = put(script("alice"), f"{P}/{registry}", body)
    assert refused.status_code == 400 and violation(refused)[1] == field
    assert CANARY not in refused.content.decode() and not RegistryCredential.objects.exists()


@pytest.mark.parametrize(
    ("person", "page", "url"),
    [
        ("alice", "/projects/default/secrets", "/projects/default/registries"),
        ("root", "/locations/", "/locations/default/registries"),
    ],
)
def test_the_page_sets_one_shows_its_registry_and_deletes_it(browser, location, person, page, url):
    client = browser(person)
    seen = client.post(url, {"registry": "GHCR.io", **ADA}, follow=True).content.decode()
    assert "is set. It is not shown again." in seen and 'value="ghcr.io"' in seen and CANARY not in seen
    assert CANARY not in client.get(page).content.decode()
    seen = client.post(url, {"registry": "lab", **ADA}, follow=True).content.decode()
    assert "such as ghcr.io" in seen and CANARY not in seen
    seen = client.post(url, {"registry": "ghcr.io", "delete": "1"}, follow=True).content.decode()
    assert "is deleted" in seen and 'value="ghcr.io"' not in seen
    assert list(AuditEntry.objects.values_list("what", "actor").order_by("pk")) == [
        ("registry.set", person),
        ("registry.remove", person),
    ]


def test_a_submitter_sees_the_registries_and_no_form(browser, script, location):
    put(script("alice"), f"{P}/ghcr.io", ADA)
    seen = browser("bob").get("/projects/default/secrets").content.decode()
    assert "<code>ghcr.io</code>" in seen and 'name="registry"' not in seen
    assert b"Image registries" not in browser("bob").get("/account/secrets").content
