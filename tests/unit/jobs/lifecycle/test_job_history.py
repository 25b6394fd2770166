"""History: every line says what sort of thing it tells, by both clocks, and a long wait does not flood it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from agents.infra.clock import Clock
from agents.models import Host, HostStatus
from jobs.lifecycle import job_history
from jobs.lifecycle.advance import advance
from jobs.models import Transition
from jobs.rules.scheduling.wait_reasons import wait_kind
from tests.unit.jobs.conftest import gang, pool_of
from tests.unit.jobs.paper import settle


def lines(job, *names):
    return list(Transition.objects.filter(job=job).order_by("pk").values_list(*names))


def test_each_line_of_a_job_says_what_it_is(add_host, desk, submit):
    """Placed, run, killed, restarted, done: kinds, runs and the host's wrong clock stand in the rows."""
    host = add_host()
    Host.every.filter(pk=host.row.pk).update(clock_offset_s=35.5)
    job = submit(gang(pool_of("sleep 9")))
    settle(desk, host)
    host.end(desk, f"{job.pk}-workerpool0-0-a1-r0", exit_signal=9)
    settle(desk, host)
    host.end(desk, f"{job.pk}-workerpool0-0-a1-r1", exit_code=0)
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


def test_a_flag_is_told_when_it_comes_and_when_it_goes(add_host, desk, submit):
    host = add_host()
    job = submit()
    settle(desk, host)
    for status in (HostStatus.UNREACHABLE, HostStatus.UNREACHABLE, HostStatus.UP):
        Host.every.filter(pk=host.row.pk).update(status=status, status_since=timezone.now())
        advance([job.pk], Clock())
    flags = Transition.objects.filter(job=job, kind="flag").order_by("pk")
    assert [(row.from_state, row.to_state) for row in flags] == [("", "UNREACHABLE"), ("UNREACHABLE", "")]
    assert "No answer from h1" in flags[0].cause


def test_a_long_wait_has_a_line_for_each_kind_of_reason_only(submit):
    job, now = submit(place=False), timezone.now()
    words = {
        0: "needs 8 GPUs in lab-a; 3 hosts free",
        10: "needs 8 GPUs in lab-b; 2 hosts free",  # other numbers and names only
        11: "project default uses 2 of 2 NVIDIA_L4",
        12: "needs 8 GPUs in lab-a; 3 hosts free",  # another kind again, but too soon after the one before
        20: "needs 8 GPUs in lab-a; 1 host free",
    }
    for minute, why in words.items():
        Transition.objects.bulk_create(
            job_history.of_waiting({why: [job.pk]}, now + timedelta(minutes=minute))
        )
    told = Transition.objects.filter(job=job, subject="wait").order_by("pk")
    assert [(row.kind, row.cause) for row in told] == [
        ("wait", words[0]),
        ("quota", words[11]),
        ("wait", words[20]),
    ]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("needs 4 × 8 H100 in lab-a; 3 hosts free", "needs 2 × 8 H100 in lab-a; gpu12 frees by 14:10", True),
        ("project vision uses 16 of 16 H100", "project vision uses 15 of 16 H100", True),
        ("Waits for its turn: earlier jobs wait for the same hosts.", "needs 4 × 8 H100 in lab-a", False),
        ("project vision uses 16 of 16 H100", "needs 4 × 8 H100 in lab-a", False),
    ],
)
def test_reasons_of_one_kind(one, other, same):
    assert (wait_kind(one) == wait_kind(other)) is same
