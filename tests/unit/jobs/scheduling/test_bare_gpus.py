"""Hosts whose containers get GPUs without the driver's libraries: whoever submits is warned of them."""

from __future__ import annotations

import pytest

from agents.models import Gpu, Host
from jobs.models import ImageAlias, Job
from jobs.rules.spec.advice import WARNING
from jobs.rules.spec.parse import parse_custom_job
from jobs.scheduling import bare_gpus, output_directories
from tests.unit.jobs.conftest import spec

pytestmark = pytest.mark.django_db


def spec_of(image="pytorch/pytorch:2.4", gpus=1, kind="NVIDIA_L4", **pool):
    machine = {"acceleratorType": kind, "acceleratorCount": gpus} if gpus else {}
    container = {"imageUri": image, "command": ["python3"]}
    document = spec()
    document["jobSpec"]["workerPoolSpecs"] = [{"machineSpec": machine, "containerSpec": container, **pool}]
    return document


def warned(document):
    found = output_directories.advice_about(parse_custom_job(document).job_spec, "default")
    return [each.text for each in found if "libraries of the driver" in each.text and each.kind == WARNING]


@pytest.fixture
def has(add_host):
    """Let a host with a GPU have these facts, as its check finds them."""
    host = add_host("gpu-7", gpus=1, cpus=4)
    Gpu.objects.filter(host=host.row).update(accelerator_type="NVIDIA_L4")
    uuid = Gpu.objects.get(host=host.row).uuid

    def has(**facts):
        facts = {"runtimes": ["podman 4.9"], "gpu_nodes": True, "cdi": [], **facts}
        facts["cdi"] = [uuid if each == "ITS" else each for each in facts["cdi"] or ()] or facts["cdi"]
        Host.every.filter(pk=host.row.pk).update(facts=facts)

    return has


def test_a_job_with_an_image_and_gpus_is_told_of_hosts_without_a_spec(has):
    has()
    [text] = warned(spec_of())
    assert "On gpu-7" in text and "checklist" in text


@pytest.mark.parametrize(
    ("facts", "is_warned"),
    [
        ({"cdi": ["ITS"]}, False),
        ({"cdi": ["GPU-of-another-card"]}, True),
        ({"cdi": None}, False),
        ({"gpu_nodes": False}, False),
        ({"runtimes": ["docker 27.1"], "docker": {"cdi": False}}, True),
        ({"runtimes": ["docker 27.1"], "docker": {"cdi": None}}, False),
        ({"runtimes": ["docker 27.1"], "docker": {"cdi": False}, "nvidia_hook": True}, False),
        ({"runtimes": ["docker 27.1"], "docker": {"cdi": True}, "cdi": ["ITS"]}, False),
        ({"runtimes": ["docker 27.1"], "docker": {"cdi": True}}, True),
        ({"runtimes": ["apptainer 1.3"]}, False),
    ],
)
def test_only_where_the_host_has_said_that_it_gives_the_nodes_alone(has, facts, is_warned):
    """Without a spec that names the card; Docker by its own ways; a runner that is too old says nothing."""
    has(**facts)
    assert bool(warned(spec_of())) is is_warned


@pytest.mark.parametrize("changes", [{"image": "host"}, {"gpus": 0}, {"kind": "NVIDIA_H100_80GB"}])
def test_jobs_that_no_such_container_runs_are_not_told(has, changes):
    has()
    assert not warned(spec_of(**changes))


def test_an_image_that_stands_for_the_host_needs_no_spec(has):
    has()
    location = Host.every.get().location
    ImageAlias.objects.create(location=location, name="pytorch/pytorch", image="host")
    assert not warned(spec_of())


def test_the_page_of_a_job_says_it_by_the_images_of_its_submit(has, submit):
    has()
    job = submit(spec_of())
    assert [each for each in output_directories.advice_of(job) if "libraries of the driver" in each.text]
    Job.every.filter(pk=job.pk).update(resolved={"pools": {"0": {"alias": "host"}}})
    job.refresh_from_db()
    assert not [each for each in output_directories.advice_of(job) if "libraries of the driver" in each.text]


def test_other_jobs_ask_for_no_host(django_assert_num_queries):
    found = parse_custom_job(spec_of("host")).job_spec
    with django_assert_num_queries(0):
        assert bare_gpus.hosts(found, "default", {}) == []
