"""Which jobs are placed, which wait, and for what reason."""

from __future__ import annotations

import re

import pytest
from django.db import IntegrityError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agents.infra import sql
from agents.models import Gpu, Host, HostStatus
from jobs import services
from jobs.lifecycle import claims
from jobs.models import GpuClaim, HostMaintenance, Project, Run, Tick, Transition
from jobs.rules.scheduling.placement import HostView
from jobs.rules.scheduling.policy import BEHIND
from jobs.scheduling import capacity, machine_types, scheduler
from tests.unit.jobs.conftest import gang, pool_of, spec
from tests.unit.jobs.fake_hosts import settle


def pass_now():
    scheduler.schedule(timezone.now())


def state_of(job):
    job.refresh_from_db()
    return job.state


def test_without_a_host_a_job_waits_and_says_what_to_do(submit, add_host):
    job = submit(spec(gpus=8, kind="NVIDIA_H100_80GB"))
    assert (job.state, job.reason) == ("QUEUED", capacity.NO_HOST)
    host = add_host(status=HostStatus.UNREACHABLE, gpus=8, kind="NVIDIA_H100_80GB", cpus=64)
    pass_now()
    assert state_of(job) == "QUEUED" and job.reason == scheduler.NONE_UP
    Host.objects.filter(pk=host.row.pk).update(status=HostStatus.UP)
    HostMaintenance.objects.create(host=host.row, cordoned=True)
    pass_now()
    assert state_of(job) == "QUEUED"
    HostMaintenance.objects.update(cordoned=False)
    pass_now()
    assert state_of(job) == "PENDING" and job.reason == "" and len(Run.objects.get().gpu_uuids) == 8


def test_what_can_never_fit_is_refused_at_once(add_host, submit):
    submit(spec(gpus=4))  # no host is known yet
    add_host(gpus=2)
    add_host("other", gpus=8, location="elsewhere")
    with pytest.raises(services.Refused) as refused:
        submit(spec(gpus=4))
    assert refused.value.field == "job_spec.worker_pool_specs[0].machine_spec.accelerator_type"
    assert "4 NVIDIA_L4" in refused.value.message and "There are: 1 with 2 NVIDIA_L4" in refused.value.message
    submit(spec(gpus=4), location="elsewhere")
    with pytest.raises(services.Refused):
        submit(spec(gpus=4), location="europe-west4")  # an unknown name means the default location
    Host.objects.filter(name="h1").update(retired_at=timezone.now())
    submit(spec(gpus=4))  # only hosts in service count


def test_a_gang_is_placed_whole_or_not_at_all(add_host, submit):
    add_host("h1", cpus=2)
    big = submit(gang(pool_of(), pool_of(count=1)))
    waits = submit(gang(pool_of(), pool_of(count=1)))
    assert (big.state, waits.state) == ("PENDING", "QUEUED") and Run.objects.count() == 2
    assert "2 x 1 CPU" in waits.reason and not Run.objects.filter(job=waits).exists()
    version = waits.version
    pass_now()
    waits.refresh_from_db()
    assert waits.version == version  # the reason is written only when it changes


def test_first_come_first_served_on_what_both_could_use(add_host, submit, control_plane):
    gpu, cpu = add_host("gpu", cpus=2, gpus=2), add_host("cpu", cpus=4)
    first = submit(spec(gpus=2))
    second = submit(spec(gpus=2))
    third = submit(spec(gpus=1))
    small = [submit() for _ in range(4)]
    assert [state_of(job) for job in (first, second, third)] == ["PENDING", "QUEUED", "QUEUED"]
    assert third.reason == BEHIND.text and "2 NVIDIA_L4" in second.reason
    # The CPU host is useless to them, so no job waits for it; on the GPU host one CPU is left beside the second.
    assert [state_of(job) for job in small] == ["PENDING"] * 4
    assert [state_of(submit()) for _ in range(2)] == ["PENDING", "QUEUED"]
    settle(control_plane, gpu, cpu)
    gpu.end(control_plane, Run.objects.get(job=first).pk, exit_code=0)
    assert (state_of(second), state_of(third)) == ("PENDING", "QUEUED")


def test_a_place_that_a_constraint_refuses_is_offered_again(add_host, submit, monkeypatch):
    add_host(cpus=4, gpus=2)
    taken = submit(spec(gpus=1))
    stray = GpuClaim.objects.get().gpu
    honest = capacity.read_capacity

    def blind(held):
        """As if the claims had been read before another scheduler wrote its own."""
        ground = honest(held)
        view = HostView(**{name: getattr(ground.views[0], name) for name in ("id", "name", "location", "address")},
                        cpus=9.0, memory_mb=16_000, gpus=ground.views[0].gpus,
                        used_ports=ground.views[0].used_ports)  # fmt: skip
        return capacity.ClusterCapacity(ground.hosts, (view,), ground.locations, True)

    monkeypatch.setattr(capacity, "read_capacity", blind)
    clashes, fine = submit(spec(gpus=1), place=False), submit(place=False)
    pass_now()
    assert (state_of(clashes), state_of(fine)) == ("QUEUED", "PENDING")
    assert GpuClaim.objects.filter(gpu=stray).count() == 1 and Run.objects.filter(job=taken).count() == 1
    assert not Transition.objects.filter(job=clashes, to_state="PENDING").exists()
    monkeypatch.setattr(capacity, "read_capacity", honest)
    pass_now()
    assert state_of(clashes) == "PENDING"


def test_many_jobs_are_placed_by_few_statements(add_host, submit, django_assert_max_num_queries):
    for number in range(4):
        add_host(f"h{number}", cpus=8)
    jobs = [submit(place=False) for _ in range(40)]
    with django_assert_max_num_queries(40):
        pass_now()
    assert [state_of(job) for job in jobs] == ["PENDING"] * 32 + ["QUEUED"] * 8
    assert {job.reason for job in jobs[33:]} == {BEHIND.text}
    assert Tick.objects.get(name="schedule").serial == 1


def test_a_pass_reads_once_what_runs_hold(add_host, submit, alice, control_plane):
    """One read serves the free capacity, the running jobs and their ends, and the shares of several projects."""
    host = add_host(cpus=2)
    submit()
    settle(control_plane, host)
    other = Project.objects.create(name="other", created_at=timezone.now())
    waiting = [submit(place=False) for _ in range(2)]
    services.submit(other, alice, spec(), "default", None, timezone.now())
    with CaptureQueriesContext(connection) as asked:
        pass_now()
    reads = [
        each["sql"] for each in asked if re.search(r'FROM "?jobs_run"?\b.*released_at"? IS NULL', each["sql"])
    ]
    assert len(reads) == 1 and [state_of(job) for job in waiting] == ["QUEUED"] * 2
    assert Run.objects.filter(job__project=other).count() == 1, "its share is the smaller one"


def test_a_port_is_not_given_twice(add_host, submit):
    add_host(cpus=20)
    for _ in range(3):
        submit(gang(pool_of(), pool_of(count=4)))
    ports = list(Run.objects.values_list("port", flat=True))
    assert len(set(ports)) == 15 and set(ports) <= set(capacity.ports())


def test_runs_without_a_row_for_their_gpu_are_an_error_not_a_silent_claim(add_host, submit):
    add_host(gpus=1)
    submit(spec(gpus=1))
    run = Run.objects.get()
    Gpu.objects.update(uuid="GPU-renamed")
    run.pk, run.number, run.port = "other", 1, run.port + 1
    with pytest.raises((KeyError, IntegrityError)):
        claims.save([run], timezone.now())


@pytest.mark.parametrize(("passes", "placed"), [(1, True), (2, False)])
def test_only_a_pass_that_began_after_the_hint_spares_another(passes, placed, add_host, submit, monkeypatch):
    """The pass that was under way when the hint came may have read too early."""
    add_host()
    job, honest = submit(place=False), scheduler.lock_pass

    def claim():
        """While this call waits for the lock, others finish so many passes."""
        if honest().serial < passes:
            Tick.objects.update(serial=passes)
        return honest()

    monkeypatch.setattr(scheduler, "lock_pass", claim)
    pass_now()
    assert (state_of(job) == "PENDING") == placed


def test_a_gang_runs_on_an_admins_own_machine_type(add_host, submit):
    """The variables of its replicas follow from what they hold, not from a name that only admins know."""
    add_host("h1", gpus=4)
    machine_types.define("our-own", "", 1, 1_000, "NVIDIA_L4", 2, "", "root", timezone.now())
    job = submit(gang(pool_of(machine="our-own"), pool_of(machine="our-own")))
    assert job.state == "PENDING"
    assert {run.order["env"]["PET_NPROC_PER_NODE"] for run in Run.objects.all()} == {"2"}


if connection.vendor == "postgresql":

    def test_a_pass_reads_and_writes_in_few_trips(add_host, submit, monkeypatch):
        """After each trip the thread waits for its turn among the others of its process."""
        add_host(cpus=4, gpus=4)
        submit(spec(gpus=1))  # compiles the statements
        job = submit(spec(gpus=1), place=False)
        alone, together = [], []

        def note(execute, sql, params, many, context):
            ahead = connection.connection.pgconn.pipeline_status
            (together if ahead else alone).append(sql)
            return execute(sql, params, many, context)

        trips, honest = [], sql.write_together
        monkeypatch.setattr(sql, "write_together", lambda: trips.append(1) or honest())
        with connection.execute_wrapper(note):
            pass_now()
        assert state_of(job) == "PENDING"
        assert len(trips) == 2, "the lock of the pass with what it reads; the rows of the job"
        assert len(together) >= 16 and len(alone) <= 6, alone
