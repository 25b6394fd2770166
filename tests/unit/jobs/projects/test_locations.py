"""A location that is bound to projects takes no job of another project: not at submit, nor at any later placement."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from agents.infra.refusals import Refused
from agents.models import Gpu, Host
from jobs import services
from jobs.maintenance import location_bindings
from jobs.models import AuditEntry, Job, LocationBinding, Membership, Project, Role, Run
from jobs.rules.lifecycle.states import JobState
from jobs.rules.spec import reduction
from jobs.scheduling import output_directories, scheduler
from tests.unit.jobs.conftest import spec
from tests.unit.jobs.fake_hosts import settle
from tests.unit.jobs.scheduling.test_moves import drain, look, places


@pytest.fixture
def vision(db):
    return Project.objects.create(name="vision", created_at=timezone.now())


@pytest.fixture
def submit_as(db):
    """submit_as(project) submits a job of that project and lets the scheduler look at it."""

    def submit(project, location="default", document=None, **options):
        user, _ = User.objects.get_or_create(username=f"{project.name}-person")
        Membership.objects.get_or_create(project=project, user=user, defaults={"role": Role.SUBMITTER})
        job = services.submit(
            project, user, document or spec(), location, options.get("request_id"), timezone.now()
        )
        scheduler.schedule(timezone.now())
        job.refresh_from_db()
        return job

    return submit


def bind(*projects, location="default"):
    location_bindings.bind(location, [project.name for project in projects], "root", timezone.now())


def test_a_bound_location_refuses_jobs_of_other_projects_and_names_those_that_remain(
    add_host, project, vision, submit_as
):
    add_host(), add_host("h2", location="lab")
    bind(vision)
    with pytest.raises(Refused) as refused:
        submit_as(project)
    assert refused.value.field == "location"
    assert refused.value.message == (
        "Location default serves other projects, and not default. Choose lab; or an admin can bind it to the project."
    )
    assert "vision" not in refused.value.message, "who the others are is not for strangers"
    with pytest.raises(Refused):
        submit_as(project, "us-central1")  # it means the default location
    assert submit_as(vision).state == JobState.PENDING
    assert submit_as(project, "lab").state == JobState.PENDING


def test_a_refused_project_does_not_learn_what_the_location_has(add_host, project, vision, submit_as):
    add_host(gpus=1, kind="NVIDIA_SECRET")
    bind(vision)
    with pytest.raises(Refused) as refused:
        submit_as(project, document=spec(gpus=1, kind="NVIDIA_NONE"))
    assert "SECRET" not in refused.value.message and refused.value.field == "location"


def test_a_location_without_projects_serves_all_again(add_host, project, vision, submit_as):
    add_host()
    bind(vision)
    bind()
    assert submit_as(project).state == JobState.PENDING


def test_a_request_that_made_its_job_before_the_binding_gets_that_job(add_host, project, vision, submit_as):
    add_host()
    job = submit_as(project, request_id="once")
    bind(vision)
    assert submit_as(project, request_id="once").pk == job.pk


def test_a_job_that_waited_when_the_binding_changed_waits_says_why_and_holds_up_nobody(
    add_host, project, vision, submit_as, control_plane
):
    host = add_host(cpus=1)
    first = submit_as(project)
    waiting = submit_as(project)
    settle(control_plane, host)
    assert (first.state, waiting.state) == (JobState.PENDING, JobState.QUEUED)
    bind(vision)
    services.cancel(Job.objects.get(pk=first.pk), "root", timezone.now())
    settle(control_plane, host)
    scheduler.schedule(timezone.now())
    waiting.refresh_from_db()
    assert waiting.state == JobState.QUEUED
    assert waiting.reason.startswith("Location default serves other projects, and not default.")
    assert submit_as(vision).state == JobState.PENDING, "a job behind it gets the place"
    bind(vision, project)
    assert Job.objects.get(pk=waiting.pk).reason == waiting.reason, "no place is free yet"
    host.row.cpus = 4
    host.row.save()
    scheduler.schedule(timezone.now())
    waiting.refresh_from_db()
    assert waiting.state == JobState.PENDING


def test_a_waiting_job_says_why_also_while_no_host_is_up(project, vision, submit_as):
    job = submit_as(project)
    bind(vision)
    scheduler.schedule(timezone.now())
    job.refresh_from_db()
    assert "serves other projects" in job.reason


def test_a_running_job_goes_on_and_its_next_attempt_waits(
    add_host, project, vision, submit_as, control_plane
):
    host = add_host()
    job = submit_as(project)
    settle(control_plane, host)
    bind(vision)
    look(control_plane, host)
    job.refresh_from_db()
    assert job.state == JobState.RUNNING
    # 134 is a transient error: the whole job runs again.
    host.end(control_plane, Run.objects.get().pk, exit_code=134)
    settle(control_plane, host)
    look(control_plane, host)
    job.refresh_from_db()
    assert (job.state, job.attempt) == (JobState.QUEUED, 2)
    assert "serves other projects" in job.reason
    assert Run.objects.count() == 1


def test_no_replica_moves_from_a_drained_host_to_one_that_serves_others(
    add_host, project, vision, submit_as, control_plane
):
    one, two = add_host("one"), add_host("two")
    job = submit_as(project)
    settle(control_plane, one, two)
    bind(vision)
    here, there = (one, two) if places(job)["workerpool0-0"][0] == "one" else (two, one)
    drain(here)
    look(control_plane, one, two)
    job.refresh_from_db()
    assert not Run.objects.filter(host=there.row).exists()
    assert "Cannot leave" in job.reason and "serves other projects" in job.reason
    bind(vision, project)
    look(control_plane, one, two)
    assert Run.objects.filter(host=there.row).exists()


def test_each_change_of_a_binding_is_in_the_audit_and_the_same_again_is_not(project, vision):
    bind(vision)
    bind(vision)
    bind(vision, project)
    bind()
    entries = AuditEntry.objects.filter(what="location.bind").order_by("pk")
    assert [(entry.before, entry.after) for entry in entries] == [
        ([], ["vision"]),
        (["vision"], ["default", "vision"]),
        (["default", "vision"], []),
    ]


def test_unknown_names_are_refused_and_change_nothing(project, vision):
    for asked in (("default", ["vision", "moon"]), ("moon", ["vision"])):
        with pytest.raises(Refused, match="There is no"):
            location_bindings.bind(*asked, "root", timezone.now())
    assert not LocationBinding.objects.exists()


def test_advice_of_an_old_job_names_no_host_that_does_not_exist_for_its_project(
    add_host, project, vision, submit_as
):
    """Its storage, its GPUs without the driver's libraries, its network cards: on the page and in REST."""
    hosts = [add_host(name, gpus=1, cpus=4) for name in ("one-1", "two-2", "three-3")]
    facts = {"runtimes": ["podman 4.9"], "gpu_nodes": True, "cdi": [], "shared": []}
    rows = [{"name": "eth0", "address": "10.0.0.1", "mbit": 1000}]
    facts["network"] = {"interfaces": rows, "infiniband": True}
    Host.every.filter(pk__in=[host.row.pk for host in hosts]).update(facts=facts)
    kind = "NVIDIA_L4"
    Gpu.objects.update(accelerator_type=kind)
    document = spec()
    trains = {
        "machineSpec": {"acceleratorType": kind, "acceleratorCount": 1},
        "containerSpec": {"imageUri": "lab/train:1", "command": ["python3"]},
    }
    reducers = {"replicaCount": "1", "containerSpec": {"imageUri": reduction.IMAGES[0]}}
    document["jobSpec"]["workerPoolSpecs"] = [trains, trains, reducers]
    document["jobSpec"]["baseOutputDirectory"] = {"outputUriPrefix": "/data/out"}
    job = submit_as(project, document=document)

    def named():
        texts = [each.text for each in output_directories.advice_of(job)]
        return [text for text in texts if "one-1" in text]

    assert len(named()) == 3, "storage, GPUs, network"
    bind(vision)
    assert named() == [] and output_directories.advice_of(job)
    bind(vision, project)
    assert len(named()) == 3
