"""One host cannot start its replica of a gang: all claims are released, the reason is shown, the job is tried again,
and it never runs with a part of its replicas."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from agents.infra.clock import Clock
from agents.links.control_plane import Arrival
from agents.links.orders import Start
from agents.models import Host, HostStatus
from jobs.lifecycle.advance import advance
from jobs.maintenance.cordon_and_drain import declare_gone
from jobs.models import GpuClaim, Run, Transition
from jobs.rules.lifecycle.retry import INTERNAL_TEXT
from jobs.scheduling.scheduler import schedule
from tests.unit.jobs.conftest import gang, pool_of
from tests.unit.jobs.fake_hosts import FakeHost, FakeRun, settle

pytestmark = pytest.mark.django_db


class Refusing(FakeHost):
    """Refuses the starts for which `minds(order)` is true, with `refusal` as the runner's reason."""

    def obey(self, order, control_plane):
        if isinstance(order, Start):
            document = control_plane.start_orders([order.run]).get(order.run)
            if document and self.minds(document):
                exit = {
                    "why": "refused",
                    "refusal": self.refusal,
                    "never_started": True,
                    "message": "so it is",
                }
                fake_run = self.runs[order.run] = FakeRun(None, "closed", exit=exit)
                return [Arrival(order.run, fake_run.fact(self.boot_id))]
        return super().obey(order, control_plane)


@pytest.fixture
def hosts(add_host):
    """Three hosts with a GPU each: a gang of three replicas takes all of them."""
    return [Refusing(add_host(f"h{number}", gpus=1).row) for number in range(3)]


@pytest.fixture
def trio(submit):
    return submit(gang(pool_of(gpus=1), pool_of(count=2, gpus=1)))


def now_of(job):
    job.refresh_from_db()
    return job


def nothing_is_held():
    return (
        not Run.objects.filter(released_at=None).exists()
        and not GpuClaim.objects.filter(released_at=None).exists()
    )


def minding(hosts, k, refusal, minds):
    for number, host in enumerate(hosts):
        host.refusal, host.minds = refusal, minds if number == k else lambda document: False


@pytest.mark.parametrize("k", range(3))
def test_a_gang_that_one_host_cannot_start_releases_everything_and_names_the_host(
    k, hosts, trio, control_plane
):
    minding(hosts, k, "storage", lambda document: True)
    settle(control_plane, *hosts)
    assert (now_of(trio).state, trio.error_message) == ("FAILED", INTERNAL_TEXT)
    assert nothing_is_held()
    blocked = [run.replica.name for run in Run.objects.filter(host=hosts[k].row).select_related("replica")]
    told = Transition.objects.filter(job=trio, subject__in=blocked, cause__contains="storage")
    assert len(blocked) == 3 and {row.subject for row in told} == set(blocked)
    assert all(f"h{k}" in row.cause for row in told)
    started = [run for host in hosts for run in host.started_runs]
    assert len(started) == len(set(started)) <= 6


@pytest.mark.parametrize("k", range(3))
def test_a_gang_waits_for_a_host_that_becomes_unreachable_while_it_starts(k, hosts, trio, control_plane):
    minding(hosts, k, "", lambda document: False)
    awake = [host for number, host in enumerate(hosts) if number != k]
    Host.objects.filter(pk=hosts[k].row.pk).update(status=HostStatus.UNREACHABLE, status_since=timezone.now())
    settle(control_plane, *awake)
    advance([trio.pk], Clock())
    assert now_of(trio).state == "PENDING" and [flag["flag"] for flag in trio.flags] == ["UNREACHABLE"]
    assert f"h{k}" in trio.flags[0]["text"]
    assert GpuClaim.objects.filter(released_at=None).count() == 3
    Host.objects.update(status=HostStatus.UP, status_since=timezone.now())
    settle(control_plane, *hosts)
    assert now_of(trio).state == "RUNNING" and [len(host.started_runs) for host in hosts] == [1, 1, 1]


@pytest.mark.parametrize("k", range(3))
@pytest.mark.parametrize("ends", ["it answers", "an admin declares it gone"])
def test_a_gang_whose_host_stays_unreachable_past_the_deadline_starts_elsewhere(
    k, ends, hosts, trio, control_plane, add_host
):
    """The other claims are released at once. The job starts elsewhere when the run of the unreachable host is proved
    closed, or declared lost."""
    minding(hosts, k, "", lambda document: False)
    silent = hosts[k]
    left = Run.objects.get(host=silent.row)
    awake = [host for host in hosts if host is not silent] + [add_host("spare", gpus=1)]
    Host.objects.filter(pk=silent.row.pk).update(status=HostStatus.UNREACHABLE, status_since=timezone.now())
    settle(control_plane, *awake)
    assert now_of(trio).state == "PENDING" and trio.due_at <= timezone.now() + timedelta(seconds=600)
    advance([trio.pk], Clock(timezone.now() + timedelta(seconds=601)))
    settle(control_plane, *awake)
    assert (now_of(trio).state, trio.outcome, trio.internal_tries) == ("PENDING", "QUEUED", 1)
    assert [claim.run for claim in GpuClaim.objects.filter(released_at=None).select_related("run")] == [left]
    assert [flag["flag"] for flag in trio.flags] == ["UNREACHABLE", "STOPPING"]
    if ends == "it answers":
        Host.objects.update(status=HostStatus.UP, status_since=timezone.now())
        settle(control_plane, *hosts, awake[-1])
    else:
        declare_gone(silent.row, silent.row.name, "alice", timezone.now())
        schedule(timezone.now())  # which it asks for when it is committed
        settle(control_plane, *awake)
    assert (now_of(trio).state, trio.attempt, trio.flags) == ("RUNNING", 2, [])
    again = Transition.objects.get(job=trio, subject="job", to_state="QUEUED", from_state="PENDING")
    assert again.cause.startswith(f"h{k} did not start {left.replica.name} (no answer since ")
    assert "within 600s; the whole job is tried again, try 2 of 3." in again.cause
    left.refresh_from_db()
    assert (
        left.phase == "closed"
        and left.released_at
        and len(silent.started_runs) == len(set(silent.started_runs))
    )
    assert left.pk not in silent.started_runs


def test_a_host_that_answers_and_starts_nothing_is_no_place_for_a_gang(hosts, trio, control_plane):
    """The host claimed the run and hangs. The run is stopped; after three tries the job fails and names the host."""
    minding(hosts, 1, "", lambda document: False)
    hosts[1].runs = Hanging()
    for number in range(1, 4):
        settle(control_plane, *hosts)
        assert (now_of(trio).state, trio.attempt) == ("PENDING", number)
        advance([trio.pk], Clock(timezone.now() + timedelta(seconds=601)))
    settle(control_plane, *hosts)
    assert (now_of(trio).state, trio.error_message) == ("FAILED", INTERNAL_TEXT) and nothing_is_held()
    told = Transition.objects.filter(job=trio, subject="job", cause__contains="h1 did not start workerpool")
    assert told.count() == 3


class Hanging(dict):
    """The runs of a host where no run gets further than its claim."""

    def __setitem__(self, run, fake_run):
        if fake_run.phase == "running":
            fake_run.phase, fake_run.never_started = "claimed", True
        super().__setitem__(run, fake_run)


def test_a_port_that_a_foreign_process_took_is_replaced_by_another(hosts, trio, control_plane):
    strangers = {run.port for run in Run.objects.all()}
    for host in hosts:
        host.refusal, host.minds = "port_taken", lambda document: document["port"] in strangers
    settle(control_plane, *hosts)
    assert now_of(trio).state == "RUNNING" and trio.attempt > 1
    assert not strangers & {run.port for run in Run.objects.filter(released_at=None)}
    assert all(host.started_runs for host in hosts)


def test_a_host_with_a_full_disk_gets_no_runs_until_it_was_checked(add_host, submit, control_plane):
    """Otherwise the host would look free, and job after job would fail there, or one job with all of its attempts."""
    full, other = hosts = [Refusing(add_host(name, gpus=1).row) for name in ("full", "other")]
    minding(hosts, 0, "disk_full", lambda document: True)
    first, second = submit(gang(pool_of(gpus=1))), submit(gang(pool_of(gpus=1)))
    settle(control_plane, *hosts)
    assert {now_of(first).state, now_of(second).state} == {"RUNNING", "QUEUED"}
    refused = Run.objects.get(host=full.row)
    assert refused.refusal == "disk_full" and refused.released_at
    row = Host.objects.get(pk=full.row.pk)
    assert row.status == HostStatus.CHECKING and row.due_at and "full" in row.last_error
    assert Host.objects.get(pk=other.row.pk).status == HostStatus.UP


def test_another_refusal_does_not_keep_runs_off_a_host(add_host, submit, control_plane):
    host = Refusing(add_host().row)
    host.minds, host.refusal = lambda document: True, "port_taken"
    submit()
    host.reconcile(control_plane)
    assert Run.objects.get(number=0, attempt=1).refusal == "port_taken"
    assert Host.objects.get().due_at is None and Host.objects.get().status == HostStatus.UP
