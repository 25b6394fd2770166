"""Aliases of a location: who changes them, what a job keeps of them, and what its order says."""

from __future__ import annotations

import pytest
from django.utils import timezone

from agents.infra.refusals import Refused
from agents.models import Host, Location
from jobs import services
from jobs.artifacts import buckets, objects
from jobs.maintenance import location_images
from jobs.models import AuditEntry, ImageAlias, Job, Preparation, Run
from jobs.rules.spec.json_fields import InvalidDocument
from jobs.rules.spec.parse import parse_custom_job
from jobs.scheduling.image_aliases import images_used
from tests.unit.jobs.conftest import gang, pool_of

pytestmark = pytest.mark.django_db

GOOGLES = "us-docker.pkg.dev/vertex-ai/training/pytorch-gpu.2-4.py310"
EVERY = "us-docker.pkg.dev/vertex-ai/*"
LABS = "ghcr.io/lab/torch:2"
PYTHON = "host:/opt/torch/bin/python3"


def located(name="default"):
    return Location.objects.get_or_create(name=name)[0]


def add(name, image, location="default"):
    location_images.add(located(location), name, image, "root", timezone.now())


def remove(name):
    location_images.remove(located(), name, "root", timezone.now())


def asking(image=f"{GOOGLES}:latest", **container):
    container = {"imageUri": image, "command": ["python3", "-c", "1"], **container}
    return gang({**pool_of(machine="n1-standard-4"), "containerSpec": container})


def packages():
    spec = {"executorImageUri": GOOGLES, "packageUris": ["gs://lab-bucket/a.tar.gz"], "pythonModule": "a.b"}
    pool = pool_of(machine="n1-standard-4")
    del pool["containerSpec"]
    return gang({**pool, "pythonPackageSpec": spec})


@pytest.fixture
def host(add_host):
    host = add_host("h1", cpus=4)
    Host.objects.filter(name="h1").update(facts={"runtimes": ["podman 5.0"]})
    return host


def order():
    return Run.objects.get().order


def test_an_image_of_googles_is_refused_until_it_has_an_alias_here(submit, host):
    add(EVERY, "host", location="elsewhere")
    with pytest.raises(InvalidDocument) as refused:
        submit(asking())
    (violation,) = refused.value.violations
    assert violation.field == "job_spec.worker_pool_specs[0].container_spec.image_uri"
    assert f"trainyard location alias default {GOOGLES} host" in violation.description
    assert not Job.objects.exists()
    add(EVERY, "host")
    submit(asking())
    assert "runtime" not in order() and order()["command"] == ["python3", "-c", "1"]


def test_the_record_tells_what_was_used_and_a_later_alias_changes_no_job(submit, host, alice):
    add(GOOGLES, LABS)
    job = submit(asking())
    assert order()["runtime"]["image"] == LABS
    remove(GOOGLES)
    add(EVERY, "host")
    job.refresh_from_db()
    assert job.resolved["pools"] == {"0": {"alias": LABS}}
    assert job.spec["workerPoolSpecs"][0]["containerSpec"]["imageUri"] == f"{GOOGLES}:latest"
    again = services.rerun(job, alice, None, timezone.now())
    assert again.resolved["pools"] == {"0": {"alias": "host"}}


def test_packages_run_with_the_python_of_the_host(submit, host, project):
    bucket = buckets.create(project, "lab-bucket", "alice", timezone.now())
    objects.put_object(project, bucket.name, "a.tar.gz", [b"a package"])
    add(EVERY, "host")
    job = submit(packages())
    assert order()["runtime"]["kind"] == "python"
    assert job.resolved["pools"]["0"]["alias"] == "host" and job.resolved["pools"]["0"]["packages"]


def test_packages_run_in_the_image_that_theirs_stands_for(submit, host, project):
    bucket = buckets.create(project, "lab-bucket", "alice", timezone.now())
    objects.put_object(project, bucket.name, "a.tar.gz", [b"a package"])
    add(EVERY, LABS)
    submit(packages())
    found, asked = order(), {row.kind: row for row in Preparation.objects.all()}
    assert found["runtime"]["kind"] == "podman" and found["runtime"]["image"] == LABS
    assert found["runtime"]["entrypoint"] == ["python3", "-m", "a.b"] and found["runtime"]["workdir"]
    assert found["packages"] == {"tree": asked["tree"].key, "index": ""}
    (shipped,) = asked["tree"].what["packages"]
    assert shipped["name"] == "a.tar.gz" and asked["tree"].what["blobs"][0]["sha256"] == shipped["sha256"]
    assert set(asked) == {"tree", "image"} and asked["image"].what["image"] == LABS


def test_packages_run_with_another_python_of_the_host(submit, add_host, project):
    for name in ("h1", "h2", "h3"):
        add_host(name, cpus=4)
    bucket = buckets.create(project, "lab-bucket", "alice", timezone.now())
    objects.put_object(project, bucket.name, "a.tar.gz", [b"a package"])
    keys = set()
    for image in ("host", PYTHON, "host:/opt/other/bin/python3"):
        add(EVERY, image)
        job = submit(packages())
        run = Run.objects.get(job=job)
        row = Preparation.objects.get(key=run.order["runtime"]["environment"])
        path = image.partition(":")[2]
        assert row.what.get("interpreter", "") == path and run.order.get("interpreter", "") == path
        assert job.resolved["pools"]["0"]["alias"] == image
        keys.add(row.key)
    assert len(keys) == 3, "an environment for each Python"


def test_a_command_finds_the_python_that_its_image_stands_for(submit, host):
    add(EVERY, PYTHON)
    submit(asking())
    assert order()["interpreter"] == "/opt/torch/bin/python3" and "runtime" not in order()


def test_hosts_need_podman_only_for_what_is_used(submit, host):
    Host.objects.update(facts={"runtimes": []})
    add(EVERY, LABS)
    with pytest.raises(InvalidDocument, match="Install podman"):
        submit(asking())
    add(EVERY, "host")
    submit(asking())


def test_a_job_without_images_asks_for_no_alias(submit, host, django_assert_num_queries):
    parsed = parse_custom_job(gang(pool_of()))
    with django_assert_num_queries(0):
        assert images_used(parsed.job_spec, "default") == {}


def test_each_change_is_audited_and_no_change_is_not(host):
    add(EVERY, "host")
    add(EVERY, "host")
    add(EVERY, LABS)
    location_images.replace(located(), {GOOGLES: "host"}, "root", timezone.now())
    remove(GOOGLES)
    entries = AuditEntry.objects.filter(what="location.images").order_by("pk")
    assert [(entry.before, entry.after) for entry in entries] == [
        ({}, {EVERY: "host"}),
        ({EVERY: "host"}, {EVERY: LABS}),
        ({EVERY: LABS}, {GOOGLES: "host"}),
        ({GOOGLES: "host"}, {}),
    ]
    assert not ImageAlias.objects.exists()


@pytest.mark.parametrize(
    ("name", "image", "words"),
    [
        (f"{GOOGLES}:latest", "host", "without its tag"),
        ("*", "host", "without its tag"),
        (GOOGLES, "--privileged", "An alias stands for"),
        (GOOGLES, "", "An alias stands for"),
        (GOOGLES, "host:python3", "An alias stands for"),
    ],
)
def test_an_alias_that_makes_no_sense_is_refused(host, name, image, words):
    with pytest.raises(Refused) as refused:
        add(name, image)
    assert words in str(refused.value) and not ImageAlias.objects.exists()


def test_an_unknown_alias_cannot_be_removed_and_their_number_is_bounded(host, monkeypatch):
    with pytest.raises(Refused, match="has no alias"):
        remove(GOOGLES)
    monkeypatch.setattr(location_images, "MAX_ALIASES", 1)
    add(EVERY, "host")
    with pytest.raises(Refused, match="at most"):
        add(GOOGLES, "host")
