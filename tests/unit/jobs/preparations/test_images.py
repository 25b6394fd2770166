"""Which image a job runs: what its tag is when it starts, the same one on all hosts, and again in a clone."""

from __future__ import annotations

import pytest
from django.utils import timezone

from agents.infra import shared_answers
from agents.models import Host, Location
from jobs import services
from jobs.maintenance import location_images
from jobs.models import Job, Preparation, Run
from tests.unit.jobs.conftest import gang, pool_of
from tests.unit.jobs.fake_hosts import settle

pytestmark = pytest.mark.django_db(transaction=True)

TAG = "ghcr.io:5000/lab/train:dev"
OLD, NEW = 64 * "a", 64 * "b"


@pytest.fixture
def hosts(add_host):
    return add_host("h1", cpus=4), add_host("h2", cpus=4)


def with_image(image=TAG):
    return {**pool_of(machine="n1-standard-4"), "containerSpec": {"imageUri": image}}


def prepare_all(control_plane, hosts, *images):
    settle(control_plane, *hosts)
    for host, image in zip(hosts, images, strict=True):
        (name,) = host.asked
        host.prepare(control_plane, name, result={"id": image, "digest": f"sha256:{image}"})
        host.asked.clear()
    settle(control_plane, *hosts)


def end_all(control_plane, hosts):
    for host in hosts:
        for run in list(host.started_runs):
            host.end(control_plane, run, exit_code=0)
    settle(control_plane, *hosts)


def images_started(job):
    return {run.order["runtime"]["image"] for run in Run.objects.filter(job=job)}


def test_each_job_asks_what_a_tag_is_now(submit, hosts, control_plane):
    first = submit(gang(with_image(), with_image()))
    prepare_all(control_plane, hosts, OLD, OLD)
    assert images_started(first) == {OLD} and len(hosts[0].started_runs) == 1
    end_all(control_plane, hosts)
    second = submit(gang(with_image(), with_image()))
    prepare_all(control_plane, hosts, NEW, NEW)
    assert images_started(second) == {NEW} and images_started(first) == {OLD}
    second.refresh_from_db()
    assert [second.resolved["pools"][pool]["image"] for pool in "01"] == 2 * [
        {"id": NEW, "digest": f"sha256:{NEW}"}
    ]


def test_a_name_with_a_digest_is_prepared_once_for_all_jobs(submit, hosts, control_plane):
    name = f"ghcr.io/lab/train@sha256:{OLD}"
    submit(gang(with_image(name), with_image(name)))
    prepare_all(control_plane, hosts, OLD, NEW)
    assert len(hosts[0].started_runs) == 1, "two architectures have two images"
    end_all(control_plane, hosts)
    job = submit(gang(with_image(name), with_image(name)))
    assert not Run.objects.filter(job=job, preparing=True).exists()
    assert Preparation.objects.count() == 2


def test_a_gang_never_runs_two_images(submit, hosts, control_plane):
    job = submit(gang(with_image(), with_image()))
    prepare_all(control_plane, hosts, OLD, NEW)
    job.refresh_from_db()
    assert job.state == "FAILED" and f"the image {TAG}: h" in job.error_message
    assert not hosts[0].started_runs and not hosts[1].started_runs


def test_hosts_with_other_bytes_in_a_sif_file_are_told_of_files_and_not_of_tags(submit, hosts, control_plane):
    job = submit(gang(with_image("/shared/train.sif"), with_image("/shared/train.sif")))
    prepare_all(control_plane, hosts, OLD, NEW)
    job.refresh_from_db()
    assert job.state == "FAILED" and not hosts[0].started_runs and not hosts[1].started_runs
    assert "has other bytes under /shared/train.sif than another host of the job" in job.error_message
    assert "tag" not in job.error_message and "pull" not in job.error_message


def test_the_next_attempt_runs_the_image_of_the_first(submit, hosts, control_plane):
    job = submit(gang(with_image(), with_image()))
    prepare_all(control_plane, hosts, OLD, OLD)
    hosts[0].end(control_plane, hosts[0].started_runs[0], why="refused", refusal="unprepared")
    settle(control_plane, *hosts)
    Job.every.update(rests_until=None, queued_at=timezone.now())
    control_plane._decider.submit((), place=True)
    settle(control_plane, *hosts)
    assert Job.objects.get(pk=job.pk).attempt == 2 and images_started(job) == {OLD}
    (what,) = {tuple(sorted(what.items())) for host in hosts for what in host.asked.values()}
    assert dict(what) == {
        "engine": "podman",
        "image": f"ghcr.io:5000/lab/train@sha256:{OLD}",
        "id": OLD,
    }


def test_a_clone_runs_the_same_image_unless_it_names_another(submit, alice, hosts, control_plane):
    first = submit(gang(with_image(), with_image()))
    prepare_all(control_plane, hosts, OLD, OLD)
    end_all(control_plane, hosts)
    clone = services.rerun(Job.objects.get(pk=first.pk), alice, None, timezone.now())
    control_plane._decider.submit((), place=True)
    assert images_started(clone) == {OLD}
    document = gang(with_image("ghcr.io/lab/train:2"), with_image())
    other = services.submit(
        first.project, alice, document, first.location_name, None, timezone.now(), cloned_from=first.pk
    )
    assert {number for number, pool in other.resolved["pools"].items() if "image" in pool} == {"1"}


def test_a_clone_runs_the_same_image_while_its_name_stands_for_the_same(submit, alice, hosts, control_plane):
    def stands_for(image):
        location_images.replace(Location.objects.get(), {"gcr.io/cloud-aiplatform/*": image}, "root", now)

    now, googles = timezone.now(), with_image("gcr.io/cloud-aiplatform/training/tf-cpu.2-8")
    googles["containerSpec"]["command"] = ["true"]
    stands_for(TAG)
    first = submit(gang(googles, googles))
    assert {row.what["image"] for row in Preparation.objects.all()} == {TAG}
    prepare_all(control_plane, hosts, OLD, OLD)
    end_all(control_plane, hosts)
    assert images_started(first) == {OLD}
    clone = services.rerun(Job.objects.get(pk=first.pk), alice, None, now)
    known = {"id": OLD, "digest": f"sha256:{OLD}"}
    assert clone.resolved["pools"]["1"] == {"alias": TAG, "image": known}
    stands_for("ghcr.io/lab/other:1")
    clone = services.rerun(Job.objects.get(pk=first.pk), alice, None, now)
    assert clone.resolved["pools"]["1"] == {"alias": "ghcr.io/lab/other:1"}
    stands_for("host")
    clone = services.rerun(Job.objects.get(pk=first.pk), alice, None, now)
    assert clone.resolved["pools"]["1"] == {"alias": "host"}
    control_plane._decider.submit((), place=True)
    assert not [run for run in Run.objects.filter(job=clone) if "runtime" in run.order]


def test_a_clone_that_another_engine_runs_asks_what_its_image_is_there(submit, alice, hosts, control_plane):
    """The ID that Docker has for an image is not the one that podman has."""

    def found(*runtimes):
        Host.every.update(facts={"runtimes": list(runtimes)})
        shared_answers.forget_all()

    found("docker 28.3")
    first = submit(gang(with_image(), with_image()))
    prepare_all(control_plane, hosts, OLD, OLD)
    end_all(control_plane, hosts)
    same = services.rerun(Job.objects.get(pk=first.pk), alice, None, timezone.now())
    assert (same.resolved["engine"], same.resolved["pools"]["1"]["image"]["id"]) == ("docker", OLD)
    found("podman 5.0", "docker 28.3")
    clone = services.rerun(Job.objects.get(pk=first.pk), alice, None, timezone.now())
    assert "engine" not in clone.resolved and not any("image" in pool for pool in kept_of(clone))
    named = [{**with_image(), "trainyard": {"runtime": engine}} for engine in ("docker", "podman")]
    other = services.submit(
        first.project, alice, gang(*named), first.location_name, None, timezone.now(), cloned_from=first.pk
    )
    assert {number for number, pool in other.resolved["pools"].items() if "image" in pool} == {"0"}


def kept_of(job):
    return job.resolved.get("pools", {}).values()


def test_what_a_host_says_is_no_name_for_an_engine(submit, hosts, control_plane):
    job = submit(gang(with_image(), with_image()))
    prepare_all(control_plane, hosts, "docker://evil", "docker://evil")
    assert images_started(job) == {TAG}
