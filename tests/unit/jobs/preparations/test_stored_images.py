"""An image that lies in the storage of the project: the bytes of the submit are shipped to each host, and run."""

from __future__ import annotations

import hashlib

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from agents.models import Host
from jobs import services
from jobs.artifacts import artifacts, buckets, objects
from jobs.models import BlobHold, Job, Membership, Preparation, Project, Role, Run
from jobs.preparations import brought
from jobs.rules.spec.json_fields import InvalidDocument
from tests.unit.jobs.conftest import gang, pool_of
from tests.unit.jobs.fake_hosts import settle

pytestmark = pytest.mark.django_db(transaction=True)

DATA, OTHER = b"an image", b"another one"
SHA, OTHER_SHA = (hashlib.sha256(data).hexdigest() for data in (DATA, OTHER))
URI = "gs://lab-bucket/images/train.tar"
FIELD = "job_spec.worker_pool_specs[0].container_spec.image_uri"


@pytest.fixture
def hosts(add_host):
    return add_host("h1", cpus=4), add_host("h2", cpus=4)


@pytest.fixture
def stored(project):
    bucket = buckets.create(project, "lab-bucket", "alice", timezone.now())

    def put(data=DATA, name="images/train.tar"):
        objects.put_object(project, bucket.name, name, [data])

    put()
    return put


def with_image(image=URI, **more):
    return {**pool_of(machine="n1-standard-4"), "containerSpec": {"imageUri": image}, **more}


def refusal(submit, *pools):
    with pytest.raises(InvalidDocument) as refused:
        submit(gang(*pools))
    assert not Job.every.exists()
    return [(each.field, str(each.description)) for each in refused.value.violations]


def asked_of(host):
    [what] = [what for name, what in host.asked.items() if name.kind == "image"]
    return dict(what)


@pytest.mark.parametrize(
    ("uri", "runtime", "engine"),
    [
        (URI, None, "podman"),
        (URI, "docker", "docker"),
        (URI, "apptainer", "apptainer"),
        ("gs://lab-bucket/images/train.sif", None, "apptainer"),
    ],
)
def test_each_host_is_shipped_the_bytes_and_starts_the_image_of_their_name(
    submit, hosts, stored, control_plane, uri, runtime, engine
):
    stored(name=uri.removeprefix("gs://lab-bucket/"))
    pool = with_image(uri, **({"trainyard": {"runtime": runtime}} if runtime else {}))
    job = submit(gang(pool, pool))
    settle(control_plane, *hosts)
    name = f"localhost/trainyard/archive:{SHA}"
    for host in hosts:
        assert asked_of(host) == {
            "engine": engine, "image": name, "archive": SHA, "blobs": [{"sha256": SHA, "size": len(DATA)}],
        }  # fmt: skip
        [shipment] = control_plane._shipping.wanted[host.row.pk]
        assert b"".join(shipment.read(0)) == DATA
    assert BlobHold.objects.get(job=job).blob.sha256 == SHA
    # Hosts of two architectures have two images of one archive: its bytes say what it is.
    for host, image in zip(hosts, (64 * "a", 64 * "b"), strict=True):
        host.prepare(control_plane, next(iter(host.asked)), result={"id": image, "digest": ""})
    settle(control_plane, *hosts)
    assert [len(host.started_runs) for host in hosts] == [1, 1]
    orders = [run.order["runtime"] for run in Run.objects.filter(job=job)]
    assert [(each["kind"], each["image"]) for each in orders] == 2 * [(engine, name)]
    assert brought.found_document(Job.objects.get())["brought"]["workerpool0"] == {"image": SHA}


def test_an_object_that_is_replaced_changes_no_job_and_no_copy_of_it(
    submit, alice, hosts, stored, control_plane
):
    first = submit(gang(with_image()))
    stored(OTHER)
    clone = services.rerun(Job.objects.get(pk=first.pk), alice, None, timezone.now())
    new = submit(gang(with_image()))
    kept = [job.resolved["pools"]["0"]["archive"]["sha256"] for job in (first, clone, new)]
    assert kept == [SHA, SHA, OTHER_SHA]


def test_two_jobs_share_what_a_host_has(submit, hosts, stored, control_plane):
    submit(gang(with_image(), with_image()))
    settle(control_plane, *hosts)
    for host in hosts:
        host.prepare(control_plane, next(iter(host.asked)), result={"id": 64 * "a", "digest": ""})
    settle(control_plane, *hosts)
    for host in hosts:
        for run in list(host.runs):
            host.end(control_plane, run, exit_code=0)
    settle(control_plane, *hosts)
    again = submit(gang(with_image()))
    assert Preparation.objects.count() == 2 and not Run.objects.filter(job=again, preparing=True).exists()


def test_nobody_reads_the_address_that_another_project_has_for_the_same_bytes(
    submit, alice, add_host, stored, control_plane
):
    host = add_host("h1", cpus=8)
    other = Project.objects.create(name="other", created_at=timezone.now())
    bucket = buckets.create(other, "their-bucket", "alice", timezone.now())
    objects.put_object(other, bucket.name, "secret-plan.tar", [DATA])
    Membership.objects.create(project=other, user=alice, role=Role.ADMIN)
    document = gang(with_image("gs://their-bucket/secret-plan.tar"))
    services.submit(other, alice, document, "default", None, timezone.now())
    control_plane._decider.submit((), place=True)
    settle(control_plane, host)
    host.prepare(control_plane, next(iter(host.asked)), result={"id": 64 * "a", "digest": ""})
    settle(control_plane, host)
    host.end(control_plane, host.started_runs[0], exit_code=0)
    settle(control_plane, host)
    job = submit(gang(with_image()))
    titles = Preparation.objects.filter(needs__run__job=job).values_list("title", flat=True)
    assert list(titles) == [f"the image {URI}"]


def test_what_is_not_in_the_storage_of_the_project_is_refused_by_its_field(submit, project, hosts, stored):
    other = Project.objects.create(name="other", created_at=timezone.now())
    bucket = buckets.create(other, "their-bucket", "eve", timezone.now())
    objects.put_object(other, bucket.name, "train.tar", [DATA])
    for uri in ("gs://lab-bucket/none.tar", "gs://their-bucket/train.tar"):
        text = f"Project {project.name} has no such object in its buckets. Upload it."
        assert refusal(submit, with_image(uri)) == [(FIELD, text)]


def test_an_artifact_is_named_by_its_bytes_also_a_package(submit, project, hosts, control_plane):
    image = artifacts.add_artifact(project, "image", "train.tar", [DATA], "alice")
    wheel = artifacts.add_artifact(project, "package", "trainer-1-py3-none-any.whl", [OTHER], "alice")
    package = {
        "executorImageUri": "host",
        "packageUris": [f"artifact:{wheel.sha256}"],
        "pythonModule": "t.task",
    }
    of_package = {**pool_of(machine="n1-standard-4"), "pythonPackageSpec": package}
    del of_package["containerSpec"]
    job = submit(gang(with_image(f"artifact:{image.sha256}"), of_package))
    pools = job.resolved["pools"]
    assert pools["0"]["archive"] == {"sha256": SHA, "size": len(DATA)}
    assert pools["1"]["packages"] == [{"sha256": OTHER_SHA, "size": len(OTHER), "name": wheel.name}]
    clone = services.rerun(job, User.objects.get(username="alice"), None, timezone.now())
    assert clone.resolved["pools"] == pools


def test_an_artifact_of_another_project_is_none(submit, hosts, project):
    other = Project.objects.create(name="other", created_at=timezone.now())
    artifacts.add_artifact(other, "image", "train.tar", [DATA], "eve")
    text = f"Project {project.name} has no artifact with this SHA-256. Upload it."
    assert refusal(submit, with_image(f"artifact:{SHA}")) == [(FIELD, text)]


def test_what_cannot_be_an_image_is_refused_by_its_field_with_what_can(submit, hosts, stored):
    for uri in ("gs://lab-bucket/train.zip", "gs://lab-bucket/train", "gs://lab-bucket/", "gs://x.tar"):
        [(field, text)] = refusal(submit, with_image(uri))
        assert field == FIELD and ".tar.gz" in text and ".sif" in text and uri in text


@pytest.mark.parametrize("runtime", ["podman", "docker"])
def test_a_sif_file_for_another_engine_is_refused_with_the_cure(submit, hosts, stored, runtime):
    stored(name="x.sif")
    pool = with_image("gs://lab-bucket/x.sif", trainyard={"runtime": runtime})
    [(field, text)] = refusal(submit, pool)
    assert field == "job_spec.worker_pool_specs[0].trainyard.runtime" and 'say "apptainer"' in text


def test_where_no_host_has_apptainer_a_sif_file_is_refused_with_the_cure(submit, hosts, stored):
    stored(name="x.sif")
    Host.every.update(facts={"runtimes": ["podman 5.0"]})
    [(field, text)] = refusal(submit, with_image("gs://lab-bucket/x.sif"))
    assert field == FIELD and "Install apptainer there" in text


def test_reducers_run_in_the_image_of_the_primary(submit, add_host, stored, control_plane):
    hosts = [add_host(name, cpus=4) for name in ("h1", "h2", "h3")]
    reducers = {
        "machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": "1",
        "trainyard": {"runtime": "reduction-server"},
    }  # fmt: skip
    document = gang(with_image(command=None), with_image())
    for pool in document["jobSpec"]["workerPoolSpecs"]:
        pool.pop("command", None)
        pool["containerSpec"]["command"] = ["python3", "train.py"]
    document["jobSpec"]["workerPoolSpecs"].append(reducers)
    job = submit(document)
    settle(control_plane, *hosts)
    assert {asked_of(host)["archive"] for host in hosts} == {SHA}
    images = {run.order["runtime"]["image"] for run in Run.objects.filter(job=job)}
    assert images == {f"localhost/trainyard/archive:{SHA}"}
