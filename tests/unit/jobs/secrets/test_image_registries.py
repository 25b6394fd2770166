"""Credentials of image registries: encrypted, each where it belongs, and told to a host for a pull only."""

from __future__ import annotations

import pytest
from django.utils import timezone

from agents.infra.refusals import Refused
from agents.models import Host, Location
from jobs import services
from jobs.models import AuditEntry, Membership, Preparation, Project, RegistryCredential, Role, Run
from jobs.preparations.images import ImageKind
from jobs.rules.spec.image_registries import is_registry, registry_of
from jobs.scheduling import scheduler
from jobs.secrets import image_registries
from tests.unit.jobs.conftest import gang, pool_of
from tests.unit.jobs.fake_hosts import settle

pytestmark = pytest.mark.django_db

CANARY = "canary-of-the-registry"
PRIVATE = "registry.lab:5000/team/train:1"


def put(owner, registry="registry.lab:5000", username="ada", password=CANARY):
    return image_registries.put(owner, registry, username, password, "alice", timezone.now())


@pytest.fixture
def host(add_host):
    return add_host("h1", cpus=4)


@pytest.fixture
def here(host):
    return Location.objects.get(name="default")


@pytest.mark.parametrize(
    ("image", "registry"),
    [
        ("ghcr.io/lab/train:1", "ghcr.io"),
        ("GHCR.io/lab/train@sha256:" + 64 * "0", "ghcr.io"),
        ("localhost:5000/train", "localhost:5000"),
        ("localhost/train", "localhost"),
        ("lab/train:1", "docker.io"),
        ("train", "docker.io"),
    ],
)
def test_the_registry_of_an_image(image, registry):
    assert registry_of(image) == registry and is_registry(registry)


@pytest.mark.parametrize(
    "name", ["", "lab", "ghcr.io/lab", "https://ghcr.io", "-o.x", "a b.c", "ghcr.io:x", "é.io"]
)
def test_what_is_no_registry_is_refused(project, name):
    with pytest.raises(Refused) as refused:
        put(project, name)
    assert refused.value.field == "registry" and "such as ghcr.io" in refused.value.message


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("username", {"username": ""}),
        ("username", {"username": "a:b"}),
        ("username", {"username": None}),
        ("password", {"password": "a\nb"}),
        ("password", {"password": 7}),
        ("password", {"password": "x" * 20_000}),
    ],
)
def test_what_is_no_credential_is_refused_with_its_field(project, field, changes):
    with pytest.raises(Refused) as refused:
        put(project, **changes)
    assert refused.value.field == field and not RegistryCredential.objects.exists()


def test_it_is_encrypted_for_its_owner_and_in_no_audit(project, here):
    put(project, "Registry.Lab:5000")
    row = RegistryCredential.objects.get()
    assert CANARY.encode() not in bytes(row.sealed) and row.registry == "registry.lab:5000"
    assert CANARY not in str(AuditEntry.objects.values())
    other = Project.objects.create(name="other", created_at=timezone.now())
    RegistryCredential.objects.create(
        project=other,
        registry=row.registry,
        sealed=row.sealed,
        changed_at=timezone.now(),
        changed_by="mallory",
    )
    assert image_registries.credentials(project, "default", "registry.lab:5000")["password"] == CANARY
    assert image_registries.credentials(other, "default", "registry.lab:5000") == {}, "it was copied there"


def test_the_projects_own_comes_before_the_locations(project, here):
    put(here, username="of the lab")
    assert image_registries.credentials(project, "default", "registry.lab:5000")["username"] == "of the lab"
    assert image_registries.credentials(project, "elsewhere", "registry.lab:5000") == {}
    assert put(project)[1] and not put(project, username="grace")[1]
    found = image_registries.credentials(project, "default", "registry.lab:5000")
    assert found == {"registry": "registry.lab:5000", "username": "grace", "password": CANARY}
    assert image_registries.remove(project, "registry.lab:5000", "alice", timezone.now())
    assert not image_registries.remove(project, "registry.lab:5000", "alice", timezone.now())
    assert AuditEntry.objects.filter(what__startswith="registry.").count() == 4


def test_there_is_room_for_some(project, monkeypatch):
    monkeypatch.setattr(image_registries, "MAX_REGISTRIES", 1)
    put(project)
    put(project, password="another")
    with pytest.raises(Refused, match="Delete one"):
        put(project, "ghcr.io")


def asking(image=PRIVATE):
    document = gang(pool_of(machine="n1-standard-4"))
    document["jobSpec"]["workerPoolSpecs"][0]["containerSpec"] = {"imageUri": image}
    return document


def test_a_host_is_told_for_the_pull_and_nothing_keeps_it(project, host, submit, control_plane):
    put(project)
    submit(asking())
    settle(control_plane, host)
    ((name, what),) = host.asked.items()
    assert what["credentials"] == {"registry": "registry.lab:5000", "username": "ada", "password": CANARY}
    assert CANARY not in str(Preparation.objects.values()) + str(Run.objects.values("order"))
    host.prepare(control_plane, name, "WORKING", message=f"with {CANARY}", tail=f"{CANARY}\nend")
    row = Preparation.objects.get()
    assert CANARY not in row.message + row.tail and "****" in row.message
    host.prepare(control_plane, name)
    settle(control_plane, host)
    assert CANARY not in str([fake.order for fake in host.runs.values()])


@pytest.mark.parametrize("named", ["default", "us-central1"])
def test_the_locations_own_is_told_where_jobs_name_a_region_of_googles(
    host, here, submit, control_plane, named
):
    put(here, username="of the lab")
    submit(asking(), location=named)
    settle(control_plane, host)
    (what,) = host.asked.values()
    assert what["credentials"]["username"] == "of the lab"


@pytest.mark.parametrize("image", [PRIVATE, "registry.lab:5000/team/train@sha256:" + 64 * "0"])
def test_a_wrong_password_of_a_project_fails_no_job_of_another(
    project, alice, add_host, submit, control_plane, image
):
    host = add_host("h1", cpus=8)
    Host.objects.update(memory_mb=64_000)
    other = Project.objects.create(name="other", created_at=timezone.now())
    Membership.objects.create(project=other, user=alice, role=Role.SUBMITTER)
    put(project, username="right"), put(other, username="wrong")
    job = submit(asking(image), place=False)
    services.submit(other, alice, asking(image), "default", None, timezone.now())
    scheduler.schedule(timezone.now())
    settle(control_plane, host)
    names = {what["credentials"]["username"]: name for name, what in host.asked.items()}
    assert sorted(names) == ["right", "wrong"]
    host.prepare(control_plane, names["wrong"], "FAILED", fault="user", message="unauthorized")
    settle(control_plane, host)
    host.prepare(control_plane, names["right"], result={"id": 64 * "a", "digest": ""})
    settle(control_plane, host)
    assert [run.job_id for run in Run.objects.filter(pk__in=host.started_runs)] == [job.pk]


def test_an_image_of_another_registry_is_pulled_without_it(project, host, submit, control_plane):
    put(project)
    submit(asking("ghcr.io/team/train:1"))
    settle(control_plane, host)
    assert "credentials" not in next(iter(host.asked.values()))


def test_the_credential_of_a_project_pulls_nothing_for_others_when_its_job_is_over(
    project, host, submit, control_plane
):
    put(project)
    job = submit(asking("registry.lab:5000/team/train@sha256:" + 64 * "0"))
    row = Preparation.objects.get()
    assert ImageKind().secrets(row)
    services.cancel(job, "alice", timezone.now())
    settle(control_plane, host)
    assert not ImageKind().secrets(row)


@pytest.mark.parametrize(
    "words",
    [
        "Error: initializing source docker://registry.lab:5000/team/train:1: unauthorized: authentication required",
        "Error: requested access to the resource is denied",
    ],
)
def test_a_pull_that_was_refused_names_the_registry_and_the_cure(host, submit, control_plane, words):
    job = submit(asking())
    settle(control_plane, host)
    (name,) = host.asked
    host.prepare(control_plane, name, "FAILED", fault="user", message=words)
    settle(control_plane, host)
    job.refresh_from_db()
    assert job.state == "FAILED" and words in job.error_message
    assert "The registry registry.lab:5000 has no such image, or gives it only" in job.error_message
    assert "PUT /api/v1/projects/default/imageRegistries/registry.lab:5000" in job.error_message


def test_another_failure_gets_no_such_cure(host, submit, control_plane):
    job = submit(asking())
    settle(control_plane, host)
    (name,) = host.asked
    host.prepare(control_plane, name, "FAILED", fault="user", message="manifest unknown")
    settle(control_plane, host)
    job.refresh_from_db()
    assert job.error_message.count("registry.lab:5000") == 1, "of the image itself"
