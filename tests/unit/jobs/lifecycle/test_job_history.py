"""History: every line has a kind and the times of both clocks, and a long wait does not flood it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from agents.infra.clock import Clock
from agents.models import Host, HostStatus
from jobs.lifecycle import job_history
from jobs.lifecycle.advance import advance
from jobs.models import HostMaintenance, Transition
from jobs.rules.scheduling.wait_reasons import Wait, WaitReason
from tests.unit.jobs.conftest import gang, pool_of
from tests.unit.jobs.fake_hosts import settle


def lines(job, *names):
    return list(Transition.objects.filter(job=job).order_by("pk").values_list(*names))


def test_each_line_of_history_has_its_kind(add_host, control_plane, submit):
    """A job is placed, runs, is killed, restarts, ends: the rows have kinds, runs, the host's clock."""
    host = add_host()
    Host.every.filter(pk=host.row.pk).update(clock_offset_s=35.5)
    job = submit(gang(pool_of("sleep 9")))
    settle(control_plane, host)
    host.end(control_plane, f"{job.pk}-workerpool0-0-a1-r0", exit_signal=9)
    settle(control_plane, host)
    host.end(control_plane, f"{job.pk}-workerpool0-0-a1-r1", exit_code=0)
    run = f"{job.pk}-workerpool0-0-a1-r"
    assert lines(job, "kind", "subject", "to_state", "run", "host_offset_s") == [
        ("state", "job", "QUEUED", "", None),
        ("placement", "job", "PENDING", "", None),
        ("placement", "workerpool0-0", "STARTING", "", None),
        ("run", "workerpool0-0", "RUNNING", f"{run}0", 35.5),
        ("state", "job", "RUNNING", "", None),
        ("restart", "workerpool0-0", "STARTING", f"{run}0", None),
        ("run", "workerpool0-0", "RUNNING", f"{run}1", 35.5),
        ("run", "workerpool0-0", "FINISHED", f"{run}1", 35.5),
        ("state", "job", "SUCCEEDED", "", None),
    ]


def test_history_records_when_a_flag_is_set_and_when_it_is_cleared(add_host, control_plane, submit):
    host = add_host()
    job = submit()
    settle(control_plane, host)
    for status in (HostStatus.UNREACHABLE, HostStatus.UNREACHABLE, HostStatus.UP):
        Host.every.filter(pk=host.row.pk).update(status=status, status_since=timezone.now())
        advance([job.pk], Clock())
    flags = Transition.objects.filter(job=job, kind="flag").order_by("pk")
    assert [(row.from_state, row.to_state) for row in flags] == [("", "UNREACHABLE"), ("UNREACHABLE", "")]
    assert "No answer from h1" in flags[0].cause


def told_at(job, *waits):
    """The lines of history after these reasons to wait, each so many minutes from now."""
    now = timezone.now()
    for minute, reason, text in waits:
        lines = job_history.of_waiting({job.pk: Wait(reason, text)}, now + timedelta(minutes=minute))
        Transition.objects.bulk_create(lines)
    told = Transition.objects.filter(job=job, subject="wait").order_by("pk")
    return [(row.kind, row.wait_reason, row.cause) for row in told]


def test_a_long_wait_has_a_line_for_each_kind_of_reason_only(submit):
    assert told_at(
        submit(place=False),
        (0, WaitReason.CAPACITY, "needs 8 GPUs in lab-a; 3 hosts free"),
        (10, WaitReason.CAPACITY, "needs 8 GPUs in lab-a; 2 hosts free"),  # the same reason, other numbers
        (11, WaitReason.QUOTA, "project default uses 2 of 2 NVIDIA_L4"),
        # Another reason again, but too soon.
        (
            12,
            WaitReason.CAPACITY,
            "needs 8 GPUs in lab-a; 3 hosts free",
        ),
        (20, WaitReason.CAPACITY, "needs 8 GPUs in lab-a; 1 host free"),
    ) == [
        ("wait", "capacity", "needs 8 GPUs in lab-a; 3 hosts free"),
        ("quota", "quota", "project default uses 2 of 2 NVIDIA_L4"),
        ("wait", "capacity", "needs 8 GPUs in lab-a; 1 host free"),
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [(WaitReason.QUOTA, WaitReason.QUOTA_RESERVED), (WaitReason.MAKING_ROOM, WaitReason.CAPACITY)],
)
def test_reasons_that_alternate_from_pass_to_pass_are_one_line(submit, one, other):
    alternating = [(10 * number, (one, other)[number % 2], f"pass {number}") for number in range(6)]
    assert len(told_at(submit(place=False), *alternating)) == 1


@pytest.mark.parametrize("reason", WaitReason)
def test_a_line_is_a_quota_line_only_if_the_decider_says_so(submit, reason):
    """Whatever the text holds: an admin may write anything about a host, and people choose their projects' names."""
    text = "Waits. gpu-03 is closed to new jobs by root: quota of project default uses all GPU-hours"
    kind = "quota" if reason in (WaitReason.QUOTA, WaitReason.QUOTA_RESERVED) else "wait"
    assert told_at(submit(place=False), (0, reason, text)) == [(kind, reason, text)]


def test_the_message_of_a_cordon_makes_no_quota_line(add_host, submit):
    """The job waits for capacity; that an admin wrote "quota" about a closed host changes nothing."""
    add_host(gpus=1)
    closed = add_host("h2", gpus=1)
    HostMaintenance.objects.create(
        host=closed.row, cordoned=True, cordoned_by="root", cordon_message="no quota left in this rack"
    )
    running, waiting = (submit(gang(pool_of(gpus=1))) for _ in range(2))
    assert (running.state, waiting.state) == ("PENDING", "QUEUED")
    assert "no quota left in this rack" in waiting.reason
    assert lines(waiting, "kind", "wait_reason")[1:] == [("wait", "capacity")]


def test_every_reason_fits_its_column():
    assert max(map(len, WaitReason)) <= Transition._meta.get_field("wait_reason").max_length
