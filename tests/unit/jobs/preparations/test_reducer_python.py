"""numpy of the reducers is asked for before any replica of the job starts, in what will run them."""

from __future__ import annotations

import pytest
from django.utils import timezone

from agents.models import Location
from jobs.artifacts import buckets, objects
from jobs.maintenance import location_images
from jobs.models import Preparation, Run
from tests.unit.jobs.conftest import gang, pool_of
from tests.unit.jobs.fake_hosts import settle

pytestmark = pytest.mark.django_db(transaction=True)

IMAGE = "ghcr.io/lab/train@sha256:" + 64 * "c"
ID = 64 * "a"


@pytest.fixture
def hosts(add_host):
    return add_host("h1", cpus=4), add_host("h2", cpus=4), add_host("h3", cpus=4)


def reduced(image="host", command=("python3.11", "train.py"), env=(), **reducers):
    container = {"imageUri": image, "command": list(command)}
    container["env"] = [{"name": name, "value": value} for name, value in env]
    trainer = {**pool_of(machine="n1-standard-4"), "containerSpec": container}
    third = {"replicaCount": "1", "trainyard": {"runtime": "reduction-server"}, **reducers}
    return gang(trainer, trainer, {**third, "machineSpec": {"machineType": "n1-standard-4"}})


def the_question():
    return Preparation.objects.get(kind="numpy")


def asked(hosts):
    return [(host, name) for host in hosts for name in host.asked]


def test_no_replica_starts_before_the_python_of_the_reducers_has_numpy(submit, hosts, control_plane):
    job = submit(reduced(env=[("PYTHONPATH", "/opt/libs"), ("EPOCHS", "3")]))
    settle(control_plane, *hosts)
    assert the_question().what == {"python": "python3.11", "env": {"PYTHONPATH": "/opt/libs"}}
    [(host, name)] = asked(hosts)
    assert not any(each.started_runs for each in hosts)
    host.prepare(control_plane, name)
    settle(control_plane, *hosts)
    assert sum(len(each.started_runs) for each in hosts) == 3
    assert not Run.objects.filter(job=job, preparing=True).exists()


def test_without_numpy_the_job_fails_and_nothing_of_it_was_started(submit, hosts, control_plane):
    job = submit(reduced())
    settle(control_plane, *hosts)
    [(host, name)] = asked(hosts)
    host.prepare(control_plane, name, "FAILED", fault="user", message="the reducer needs numpy")
    settle(control_plane, *hosts)
    job.refresh_from_db()
    assert job.state == "FAILED" and "numpy for the reducers: the reducer needs numpy" in job.error_message
    assert not any(each.started_runs for each in hosts)
    # Somebody has installed it: the next job asks anew.
    host.asked.clear()
    submit(reduced())
    settle(control_plane, *hosts)
    assert [name.kind for _, name in asked(hosts)] == ["numpy"]


def test_an_image_is_asked_when_it_is_there(submit, hosts, control_plane):
    submit(reduced(IMAGE))
    settle(control_plane, *hosts)
    assert [name.kind for _, name in asked(hosts)] == ["image"] * 3
    assert the_question().what["image"] == IMAGE and the_question().what["engine"] == "podman"
    for host, name in asked(hosts):
        host.prepare(control_plane, name, result={"id": ID, "digest": f"sha256:{ID}"})
        host.asked.clear()
    settle(control_plane, *hosts)
    [(host, name)] = asked(hosts)
    assert name.kind == "numpy" and not any(each.started_runs for each in hosts)
    host.prepare(control_plane, name)
    settle(control_plane, *hosts)
    assert sum(len(each.started_runs) for each in hosts) == 3


def test_what_is_there_for_the_run_alone_is_asked_by_its_keeper(submit, hosts, control_plane):
    submit(reduced(env=[("PYTHONPATH", "/gcs/lab/libs")]))
    settle(control_plane, *hosts)
    assert not Preparation.objects.exists()


@pytest.mark.parametrize("python", ["", "/opt/torch/bin/python3"])
def test_the_python_that_stands_for_an_image_is_asked(submit, hosts, control_plane, python):
    stands_for = f"host:{python}" if python else "host"
    names = {"ghcr.io/lab/*": stands_for}
    location_images.replace(Location.objects.get(), names, "root", timezone.now())
    submit(reduced(IMAGE, ("python3", "train.py")))
    settle(control_plane, *hosts)
    first = {"interpreter": python} if python else {}
    assert the_question().what == {"python": "python3", "env": {}, **first}


def test_packages_in_an_image_may_bring_numpy(submit, hosts, control_plane, project):
    bucket = buckets.create(project, "lab-bucket", "alice", timezone.now())
    objects.put_object(project, bucket.name, "a.tar.gz", [b"a package"])
    document = reduced()
    package = {"executorImageUri": IMAGE, "packageUris": ["gs://lab-bucket/a.tar.gz"], "pythonModule": "a"}
    for pool in document["jobSpec"]["workerPoolSpecs"][:2]:
        pool.pop("containerSpec", None)  # the two pools are one object
        pool["pythonPackageSpec"] = package
    submit(document)
    kinds = set(Preparation.objects.values_list("kind", flat=True))
    assert kinds == {"image", "tree"} and Run.objects.count() == 3
    assert all("packages" in run.order for run in Run.objects.all())


def test_a_job_without_reducers_asks_nothing(submit, hosts, control_plane):
    submit(gang(pool_of(machine="n1-standard-4"), pool_of(machine="n1-standard-4")))
    settle(control_plane, *hosts)
    assert not Preparation.objects.exists()
