"""A person declares an unreachable host gone: nothing else frees what it holds."""

from __future__ import annotations

import pytest
from django.utils import timezone

from agents.infra.refusals import Refused
from agents.links.control_plane import Arrival
from agents.models import GpuState, Host, HostEvent, HostStatus
from jobs.host_sync import intake
from jobs.host_sync.apply_reports import UnreadableFrames
from jobs.maintenance import cordon_and_drain
from jobs.models import AuditEntry, GpuClaim, Run, Transition
from jobs.scheduling import scheduler
from tests.unit.jobs.conftest import gang, pool_of, spec
from tests.unit.jobs.fake_hosts import settle
from tests.unit.jobs.scheduling.test_moves import held, look, places


def silent(host, status=HostStatus.UNREACHABLE):
    Host.objects.filter(pk=host.row.pk).update(status=status, status_since=timezone.now())


def declare(host, name=None):
    cordon_and_drain.declare_gone(host.row, name or host.row.name, "root", timezone.now())
    host.row.refresh_from_db()


def on_two_hosts(control_plane, add_host, submit):
    hosts = {name: add_host(name, gpus=2) for name in ("one", "two")}
    job = submit(gang(pool_of(gpus=2), pool_of(gpus=2)))
    settle(control_plane, *hosts.values())
    lost = hosts.pop(places(job)["workerpool1-0"][0])
    [stays] = hosts.values()
    return job, lost, stays


def test_replicas_move_off_a_host_declared_gone_and_their_old_runs_close_when_it_returns(
    control_plane, add_host, submit
):
    job, lost, stays = on_two_hosts(control_plane, add_host, submit)
    silent(lost)
    third = add_host("third", gpus=2)
    look(control_plane, stays, third)
    assert held(lost) == 1 and third.started_runs == [], "an unreachable host frees nothing"
    declare(lost)
    assert held(lost) == 0 and not GpuClaim.objects.filter(gpu__host=lost.row, released_at=None).exists()
    look(control_plane, stays, third)
    job.refresh_from_db()
    assert (job.state, job.attempt, job.job_retries) == ("RUNNING", 1, 0)
    assert places(job) == {
        "workerpool0-0": (stays.row.name, 1, "running"),
        "workerpool1-0": ("third", 1, "running"),
    }
    restarts = {replica.name: replica.restarts for replica in job.replicas.all()}
    assert restarts == {"workerpool0-0": 0, "workerpool1-0": 1}, (
        "by the table a lost run counts, its peers' do not"
    )
    [given_up] = Run.objects.filter(declared_lost_at__isnull=False)
    assert (given_up.why, given_up.message) == ("lost", f"root declared {lost.row.name} gone")
    assert Transition.objects.filter(job=job, cause__contains=f"root declared {lost.row.name} gone").exists()
    assert AuditEntry.objects.get(what="host.declare_gone").after == {"runs_given_up": 1}
    # It comes back, and what was given up still runs there.
    assert lost.runs[given_up.pk].phase == "running"
    silent(lost, HostStatus.UP)
    look(control_plane, stays, third)
    lost.row.refresh_from_db()
    assert lost.row.maintenance.gone_at and HostEvent.objects.filter(host=lost.row, kind="back").count() == 0
    settle(control_plane, lost)
    assert lost.runs[given_up.pk].phase == "closed", "ended before anything else"
    assert lost.started_runs == [given_up.pk], "and nothing was started there"
    given_up.refresh_from_db()
    assert given_up.proved_at and given_up.why == "lost"
    assert given_up.log_complete_at and given_up.log_stored == given_up.log_size > 0
    scheduler.schedule_quietly(timezone.now())
    lost.row.refresh_from_db()
    assert (
        lost.row.maintenance.gone_at is None
        and HostEvent.objects.filter(host=lost.row, kind="back").count() == 1
    )
    assert set(lost.row.gpus.values_list("state", flat=True)) == {GpuState.CLEANING}


def test_without_room_the_whole_job_waits_again_and_that_counts_against_nothing(
    control_plane, add_host, submit
):
    job, lost, stays = on_two_hosts(control_plane, add_host, submit)
    silent(lost)
    declare(lost)
    look(control_plane, stays)
    job.refresh_from_db()
    assert (job.state, job.attempt, job.job_retries) == ("QUEUED", 2, 0)
    why = Transition.objects.get(job=job, subject="job", to_state="QUEUED", from_state="RUNNING").cause
    assert "declared" in why and "no room elsewhere for workerpool1-0" in why
    assert held(stays) == held(lost) == 0
    job_two = submit(spec(gpus=2))
    look(control_plane, stays)
    assert places(job_two)["workerpool0-0"][0] == stays.row.name, "what it held elsewhere is free for others"


def test_the_dispatcher_that_held_the_lease_of_a_gone_host_is_fenced_out(control_plane, add_host, submit):
    job, lost, _ = on_two_hosts(control_plane, add_host, submit)
    token = lost.row.lease_token
    [run] = list(lost.runs)
    silent(lost)
    declare(lost)
    late = [Arrival(run, lost.runs[run].fact("boot-1"))]
    assert not intake.take(lost.row.pk, token, late, timezone.now(), UnreadableFrames()).current
    assert lost.row.lease_token > token and lost.row.lease_owner == ""
    assert job.runs.get(pk=run).phase == "closed"


def test_a_run_whose_start_was_still_on_its_way_gets_a_tombstone(control_plane, add_host, submit):
    one = add_host("one")
    job = submit(spec())
    silent(one)
    declare(one)
    assert job.runs.get(number=0).phase == "closed"
    silent(one, HostStatus.UP)
    settle(control_plane, one)
    assert one.started_runs == [] and one.runs[f"{job.pk}-workerpool0-0-a1-r0"].exit == {"why": "tombstone"}
    look(control_plane, one)
    job.refresh_from_db()
    assert job.state == "RUNNING" and places(job)["workerpool0-0"][2] == "running"


@pytest.mark.parametrize(
    ("status", "name", "field"),
    [
        (HostStatus.UP, "one", "host"),
        (HostStatus.CHECKING, "one", "host"),
        (HostStatus.UNREACHABLE, "two", "name"),
        (HostStatus.UNREACHABLE, " ", "name"),
    ],
)
def test_a_host_that_answers_or_another_name_is_refused(control_plane, add_host, submit, status, name, field):
    one = add_host("one")
    job = submit(spec())
    settle(control_plane, one)
    silent(one, status)
    with pytest.raises(Refused) as refused:
        declare(one, name)
    assert refused.value.field == field and job.runs.get().phase == "running" and held(one) == 1
