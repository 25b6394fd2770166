from __future__ import annotations

from dataclasses import replace

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from agents.links.control_plane import Arrival
from agents.models import Gpu, Host, HostStatus, Location, MachineClock
from jobs import services
from jobs.host_sync import intake
from jobs.host_sync.apply_reports import UnreadableFrames
from jobs.logs import segments, storage
from jobs.models import Membership, Project, Role, Run
from jobs.scheduling import scheduler
from tests.unit.jobs.fake_hosts import FakeHost, InlineControlPlane


@pytest.fixture
def project(db):
    return Project.objects.get(name="default")


@pytest.fixture
def kept_time(db):
    """A machine keeps the time, and did so before anything was stored."""
    now = timezone.now()
    return MachineClock.objects.create(
        machine="a boot", name="a", offset_s=0, database_s=0, machine_s=0, noted_at=now, unsure_since=now
    )


@pytest.fixture
def alice(project):
    user = User.objects.create_user("alice")
    Membership.objects.create(project=project, user=user, role=Role.SUBMITTER)
    return user


@pytest.fixture
def control_plane():
    return InlineControlPlane()


def spec(command="true", **pool):
    """A job of one replica, unless `pools` says otherwise."""
    return {"displayName": "a job", "jobSpec": {"workerPoolSpecs": [pool_of(command, **pool)]}}


def pool_of(command="true", count=1, machine="", gpus=0, kind="NVIDIA_L4"):
    accelerator = {"acceleratorType": kind, "acceleratorCount": gpus} if gpus else {}
    return {
        "machineSpec": {"machineType": machine, **accelerator},
        "replicaCount": str(count),
        "containerSpec": {"imageUri": "host", "command": ["sh", "-c", command]},
    }


def gang(*pools):
    return {"displayName": "a gang", "jobSpec": {"workerPoolSpecs": list(pools)}}


@pytest.fixture
def add_host(db):
    def add(name="h1", cpus=4, gpus=0, location="default", status=HostStatus.UP, kind="NVIDIA_L4"):
        now = timezone.now()
        place, _ = Location.objects.get_or_create(name=location)
        row = Host.objects.create(
            name=name,
            location=place,
            address=f"{name}.example",
            user="gpu",
            created_at=now,
            added_by="alice",
            status=status,
            status_since=now,
            cpus=cpus,
            memory_mb=16_000,
            boot_id="boot-1",
            lease_owner="dispatcher-1",
            lease_token=7,
        )
        for index in range(gpus):
            Gpu.objects.create(
                host=row,
                uuid=f"GPU-{name}-{index}",
                index=index,
                model=kind,
                memory_mb=1,
                accelerator_type=kind,
            )
        return FakeHost(row)

    return add


@pytest.fixture
def submit(project, alice):
    def submit_and_place(document=None, request_id=None, location="default", place=True):
        job = services.submit(project, alice, document or spec(), location, request_id, timezone.now())
        if place:
            scheduler.schedule(timezone.now())
        job.refresh_from_db()
        return job

    return submit_and_place


@pytest.fixture
def small(monkeypatch, settings, request):
    """Segments of 600 bytes instead of 8 MiB; another size for a test that asks for it."""
    segment = getattr(request, "param", 600)
    monkeypatch.setattr(storage, "MB", 1)
    monkeypatch.setattr(segments, "SMALL_TAIL", 100)
    settings.TRAINYARD = replace(settings.TRAINYARD, segment_mb=segment)


@pytest.fixture
def logged(add_host, submit, small):
    """A run, and a function by which its host reports things about it."""
    host = add_host()
    submit()
    run = Run.objects.get()

    def give(*whats):
        accepted = intake.take(
            host.row.pk, 7, [Arrival(run.pk, what) for what in whats], timezone.now(), UnreadableFrames()
        )
        run.refresh_from_db()
        return accepted

    return run, give
