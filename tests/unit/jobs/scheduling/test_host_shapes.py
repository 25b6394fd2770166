"""Shapes of hosts answer as the hosts themselves do, and a submit does not read each GPU."""

from __future__ import annotations

import random

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agents.infra import shared_answers
from agents.models import Gpu, Host, Location
from jobs import services
from jobs.models import HostMaintenance, Proof, Stray
from jobs.rules.spec.machine_types import Needs
from jobs.scheduling import capacity, host_shapes
from tests.unit.console.views.conftest import cast, project
from tests.unit.console.views.example_rows import a_host, a_job, a_run, document

__all__ = ["cast", "project"]

KINDS = ("NVIDIA_L4", "NVIDIA_H100_80GB")


def a_cluster(project, owner, dice):
    """Hosts of several sizes and states, with runs, quarantined GPUs and a forgotten run."""
    for number in range(12):
        status = dice.choice(("up", "up", "up", "unreachable"))
        host = a_host(
            f"h{number}", cpus=dice.choice((8, 16)), memory_mb=dice.choice((4_096, 65_536)), status=status
        )
        for index in range(dice.choice((0, 2, 4))):
            Gpu.objects.create(
                host=host,
                uuid=f"GPU-{number}-{index}",
                index=index,
                model="x",
                memory_mb=1,
                accelerator_type=KINDS[number % 2],
                present=dice.random() < 0.9,
                state=dice.choice(("ok", "ok", "ok", "quarantined")),
            )
        if dice.random() < 0.2:
            HostMaintenance.objects.create(host=host, cordoned=True)
        gpus = list(host.gpus.all())
        if dice.random() < 0.5:
            job = a_job(project, owner)
            a_run(job, job.replicas.get(), host, gpus=gpus[:1], cpus=4, memory_mb=1_000)
        if number == 7 and len(gpus) > 1:
            Stray.objects.create(
                host=host,
                run="17-x",
                phase="running",
                proof=Proof.SEALED,
                found_at=timezone.now(),
                gpu_uuids=[gpus[1].uuid],
                cpus=1,
                memory_mb=10,
            )


@pytest.mark.parametrize("seed", range(6))
def test_as_many_hosts_hold_a_replica_by_their_shapes_as_one_by_one(project, cast, seed):
    a_cluster(project, cast.bob, random.Random(seed))
    free = [view for view in capacity.read_capacity().views if view.location == "default"]
    empty = capacity.empty_hosts("default")
    for wanted in (
        Needs(1, 0, "", 0),
        Needs(8, 4_000, "", 0),
        Needs(12, 60_000, "", 0),
        Needs(1, 0, KINDS[0], 1),
        Needs(4, 0, KINDS[1], 2),
        Needs(16, 0, KINDS[1], 4),
    ):
        ever = sum(capacity.holds(view, wanted) for view in empty)
        assert host_shapes.hosts_that_hold(host_shapes.empty_shapes("default"), wanted) == ever
        now = sum(fits(view, wanted) for view in free)
        assert host_shapes.hosts_that_hold(host_shapes.free_shapes("default"), wanted) == now


def fits(view, wanted):
    free = [gpu.accelerator_type for gpu in view.gpus if gpu.uuid not in view.used_gpus]
    return (
        view.cpus - view.used_cpus >= wanted.cpus
        and view.memory_mb - view.used_memory_mb >= wanted.memory_mb
        and free.count(wanted.accelerator_type) >= wanted.gpus
    )


def submitted(project, cast, **machine):
    asked = document()
    asked["jobSpec"]["workerPoolSpecs"][0]["machineSpec"] = {"machineType": "host", **machine}
    return services.submit(project, cast.bob, asked, "default", None, timezone.now())


def test_a_submit_reads_no_single_gpu_and_a_refusal_is_never_of_old_shapes(project, cast):
    host = a_host("h", gpus=2)
    wanted = {"acceleratorType": "NVIDIA_L4", "acceleratorCount": 2}
    with CaptureQueriesContext(connection) as asked:
        submitted(project, cast, **wanted)
    assert not [query for query in asked if '"agents_gpu"."uuid"' in query["sql"]]
    four = {**wanted, "acceleratorCount": 4}
    with pytest.raises(services.Refused, match="can ever hold one replica"):
        submitted(project, cast, **four)
    # The refusal was not kept: the host that comes now counts at once.
    a_host("bigger", gpus=4)
    assert submitted(project, cast, **four).state == "QUEUED"
    # What was found to fit is believed for a moment: the job waits, as it does when a host is removed.
    assert submitted(project, cast, **wanted).state == "QUEUED"
    Host.objects.update(retired_at=timezone.now())
    a_host("small", location=Location.objects.get(pk=host.location_id))
    assert submitted(project, cast, **wanted).state == "QUEUED"
    shared_answers.forget_all()
    with pytest.raises(services.Refused, match="can ever hold one replica"):
        submitted(project, cast, **wanted)


@pytest.mark.django_db
def test_pages_share_the_shapes_of_the_last_seconds():
    a_host("h", gpus=2)
    with CaptureQueriesContext(connection) as first:
        empty, free = host_shapes.recent_shapes("default")
    assert (empty, free) == (host_shapes.empty_shapes("default"), host_shapes.free_shapes("default"))
    with CaptureQueriesContext(connection) as again:
        assert host_shapes.recent_shapes("default") == (empty, free)
    assert len(first) > 0 and len(again) == 0
