"""The sweep finds what is due although a hint was lost, and a broken part does not stop the others."""

from __future__ import annotations

import inspect
import os
import threading
from datetime import timedelta

import pytest
from django.db import InternalError
from django.utils import timezone

from agents.hosts import host_history
from agents.infra import clock
from agents.infra.clock import Clock
from agents.infra.outbox import Outbox
from agents.models import Host, HostEvent, HostStatus
from jobs import sweep, tasks
from jobs.host_sync import intake
from jobs.host_sync.apply_reports import UnreadableFrames
from jobs.lifecycle import advance
from jobs.logs import segments, storage
from jobs.models import Job, LogPiece, Run, Tick
from jobs.rules.lifecycle.history_kinds import HistoryKind
from jobs.rules.lifecycle.plan import HistoryEvent, Plan
from jobs.rules.lifecycle.states import JobState
from jobs.wake import hints
from tests.harness.wait_and_processes import wait_for
from tests.unit.jobs.conftest import spec
from tests.unit.jobs.fake_hosts import frame, settle
from tests.unit.jobs.host_sync.test_intake import CLOSED

pytestmark = pytest.mark.django_db


def take_only(host, run, document):
    """Facts are written, and then the dispatcher dies before a decision."""
    arrivals = [intake.Arrival(run.pk, intake.Fact(document))]
    intake.take(host.row.pk, 7, arrivals, timezone.now(), UnreadableFrames())


def now_of(job):
    job.refresh_from_db()
    return job


def test_a_job_goes_its_way_by_sweeps_alone(add_host, submit, control_plane):
    host = add_host()
    job = submit(place=False)
    at = timezone.now()
    sweep.sweep(at)
    assert now_of(job).state == "PENDING"
    run = Run.objects.get()
    take_only(host, run, {"phase": "running", "boot_id": "boot-1"})
    sweep.sweep(at + timedelta(seconds=5))
    assert now_of(job).state == "RUNNING"
    take_only(host, run, CLOSED)
    sweep.sweep(at + timedelta(seconds=10))
    sweep.sweep(at + timedelta(seconds=15))
    assert now_of(job).state == "SUCCEEDED" and job.due_at is None
    run.refresh_from_db()
    assert run.log_digest_here.startswith("sha256:e3b0c442") and run.released_at


def test_one_sweep_at_a_time_and_a_clock_set_back_stops_none(add_host, submit):
    at = timezone.now()
    assert sweep.claim("x", timedelta(seconds=1), at) and not sweep.claim("x", timedelta(seconds=1), at)
    assert sweep.claim("x", timedelta(seconds=1), at + timedelta(seconds=1))
    assert sweep.claim("x", timedelta(seconds=1), at - timedelta(days=1))
    sweep.sweep(at)
    assert Tick.objects.get(name="sweep").at == at  # the heartbeat that the health page reads


def test_a_sweep_with_nothing_to_do_asks_little(add_host, django_assert_max_num_queries):
    """Each worker of an idle deployment sweeps every second."""
    add_host()
    at = timezone.now()
    sweep.sweep(at)
    sweep.sweep(at + timedelta(seconds=20))  # before this the host counts as changed lately
    with django_assert_max_num_queries(20) as asked:
        sweep.sweep(at + timedelta(seconds=21))
    writes = [each["sql"] for each in asked.captured_queries if each["sql"].startswith(("UPDATE", "INSERT"))]
    assert len(writes) == 1 and "jobs_tick" in writes[0]


@pytest.mark.parametrize("poison", ["decision", "apply", "illegal"])
def test_a_job_whose_decision_fails_is_put_off_and_the_others_go_on(
    poison, add_host, submit, monkeypatch, caplog
):
    host = add_host(cpus=8)
    jobs = [submit() for _ in range(3)]
    bad = jobs[1]
    real = advance.decide

    def decide(view, now, *graces):
        if view.id != str(bad.pk):
            return real(view, now, *graces)
        if poison == "decision":
            raise ZeroDivisionError
        if poison == "illegal":
            moves = (("PENDING", "QUEUED"), ("QUEUED", "SUCCEEDED"))
            events = (HistoryEvent(HistoryKind.STATE, "job", *move, "") for move in moves)
            return Plan(state=JobState.SUCCEEDED, events=tuple(events))
        return Plan(job_retries=-1)

    monkeypatch.setattr(advance, "decide", decide)
    for job in jobs:
        take_only(host, Run.objects.get(job=job), CLOSED)
    at = timezone.now()
    sweep.sweep(at)
    assert [now_of(job).state for job in jobs] == ["SUCCEEDED", "PENDING", "SUCCEEDED"]
    rests = now_of(bad).due_at - at
    assert advance.RETRY_AFTER_ERROR <= rests < 2 * advance.RETRY_AFTER_ERROR and str(bad.pk) in caplog.text
    assert sweep.take_due(at + timedelta(seconds=5)) == []


@pytest.mark.parametrize("together", [1, 2])
def test_no_job_is_put_off_because_the_database_is_unavailable(together, submit, monkeypatch):
    """A suspended process finds its connection closed. That is not the job's fault: the next process decides."""
    jobs = [submit() for _ in range(together)]
    due = [job.due_at for job in jobs]

    def ended(batch, now):
        raise InternalError("terminating connection due to idle-in-transaction timeout")

    monkeypatch.setattr(advance, "_advance", ended)
    with pytest.raises(InternalError):
        advance.advance_quietly([job.pk for job in jobs], Clock())
    assert [now_of(job).due_at for job in jobs] == due


def test_a_due_job_is_moved_ahead_before_it_is_tried(add_host, submit):
    job = submit()
    at = timezone.now()
    Job.objects.update(due_at=at)
    assert sweep.take_due(at) == [job.pk]
    assert now_of(job).due_at == at + sweep.RETRY_AFTER and sweep.take_due(at) == []


def test_a_host_that_became_unreachable_without_a_hint_is_noticed(add_host, submit, control_plane):
    host = add_host()
    job = submit()
    settle(control_plane, host)
    Host.objects.update(status=HostStatus.UNREACHABLE, status_since=timezone.now())
    sweep.sweep(timezone.now())
    assert [flag["flag"] for flag in now_of(job).flags] == ["UNREACHABLE"]


def test_a_timeout_ends_a_job_without_reports(add_host, submit, control_plane):
    host = add_host()
    document = spec()
    document["jobSpec"]["scheduling"] = {"timeout": "60s"}
    job = submit(document)
    settle(control_plane, host)
    at = timezone.now() + timedelta(seconds=61)
    sweep.sweep(at)
    assert now_of(job).state == "CANCELLING" and Run.objects.get().stop_wanted_at >= at
    settle(control_plane, host)
    assert now_of(job).state == "CANCELLED" and "imeout" in job.error_message


def test_a_job_that_may_not_wait_for_ever_is_tried_four_times_and_fails(submit):
    document = spec()
    document["jobSpec"]["scheduling"] = {"strategy": "FLEX_START", "maxWaitDuration": "60s"}
    job = submit(document)
    at, attempts = timezone.now(), []
    for _ in range(60):
        at += timedelta(seconds=6)
        sweep.sweep(at)
        attempts.append(now_of(job).attempt)
        if job.state == "FAILED":
            break
    assert job.state == "FAILED" and attempts[-1] == 4 and "Resources are insufficient" in job.error_message
    assert [row.to_state for row in job.transitions.filter(subject="job")] == ["QUEUED"] * 4 + ["FAILED"]


def test_deciding_again_writes_nothing(add_host, submit, control_plane):
    host = add_host()
    job = submit()
    settle(control_plane, host)
    advance.advance([job.pk], Clock())
    before = (Job.objects.values().get(), Run.objects.values().get(), job.transitions.count())
    for _ in range(3):
        advance.advance([job.pk], Clock())
    assert before == (Job.objects.values().get(), Run.objects.values().get(), job.transitions.count())


def test_hosts_are_checked_when_they_are_due(add_host, monkeypatch):
    asked = []
    monkeypatch.setattr(hints, "enrol", asked.append)
    host, at = add_host(), timezone.now()
    Host.objects.update(due_at=at)
    sweep.sweep(at)
    sweep.sweep(at + timedelta(seconds=3))
    assert asked == [host.row.pk]


def test_an_unavailable_broker_delays_no_caller(add_host, submit, django_capture_on_commit_callbacks, caplog):
    """An attempt to reach a dead broker takes seconds; here it takes until the test is over."""
    add_host()
    silent, sent = threading.Event(), []

    class DeafError(Exception):
        pass

    def away(task, ids, queue):
        sent.append(task)
        silent.wait(60)
        if len(sent) < 3:
            raise DeafError

    messages = Outbox("deaf", lambda: hints.TaskSender(away).tell)
    messages.post(("jobs.tasks.schedule", None))
    wait_for(lambda: sent, "the first word")
    for number in range(200):
        messages.post(("jobs.tasks.advance", None), [number])
    assert len(sent) == 1
    silent.set()
    wait_for(lambda: len(sent) == 2, "all others in one message")
    messages.post(("jobs.tasks.schedule", None))
    wait_for(lambda: len(sent) == 3, "it to speak again")
    assert caplog.text.count("The broker is unavailable (DeafError)") == 1


def test_a_hint_goes_to_the_dispatcher_that_holds_the_lease(
    add_host, django_capture_on_commit_callbacks, monkeypatch
):
    mine, free = add_host("h1"), add_host("h2")
    Host.objects.filter(pk=free.row.pk).update(lease_owner="")
    sent = []
    monkeypatch.setattr(hints, "post", lambda *message: sent.append(message))
    with django_capture_on_commit_callbacks(execute=True):
        hints.hosts([mine.row.pk, free.row.pk])
        hints.jobs([])
        hints.hosts([])
        hints.watch([mine.row.pk])
    dispatch = "jobs.tasks.dispatch"
    assert sorted(sent) == [
        (dispatch, [mine.row.pk], "dispatch.dispatcher-1"),
        (dispatch, [free.row.pk], "dispatch"),
        ("jobs.tasks.watch", [mine.row.pk], "dispatch.dispatcher-1"),
    ]


def test_every_hint_names_a_task_that_exists(monkeypatch):
    """Hints with a wake-up list too: without Redis they go by the broker, which may be another server."""
    sent = []
    monkeypatch.setattr(hints.wakeup_list, "push", lambda *_, **__: (_ for _ in ()).throw(OSError()))
    monkeypatch.setattr(hints.current_app, "send_task", lambda task, args, **rest: sent.append((task, args)))
    hints.send("jobs.tasks.schedule", [], None)
    hints.send("jobs.tasks.enrol", [1, 2], None)
    for name in ("advance", "dispatch", "watch", "roll"):
        hints.send(f"jobs.tasks.{name}", [1, 2], None)
    assert [args for _, args in sent] == [[], [1], [2], *[[[1, 2]]] * 4]
    for task, args in sent:
        inspect.signature(getattr(tasks, task.removeprefix("jobs.tasks."))).bind(*args)


def test_long_tails_are_rolled_and_orphans_swept(add_host, submit, monkeypatch):
    monkeypatch.setattr(storage, "MB", 1)
    host = add_host()
    submit()
    run = Run.objects.get()
    intake.take(
        host.row.pk, 7, [intake.Arrival(run.pk, frame(0, b"x" * 50))], timezone.now(), UnreadableFrames()
    )
    at = timezone.now()
    sweep.sweep(at)
    assert not LogPiece.objects.exists()
    orphan = storage.write("1/2/3", b"left by a crash")
    began = clock.elapsed()
    for wrong_s in (7200, -86400):
        date = timezone.now().timestamp() + wrong_s
        os.utime(storage.local_path(orphan), (date, date))
        assert segments.sweep_orphans(began) == 0 and orphan in set(storage.files()), "the clock is wrong"
    monkeypatch.setattr(sweep, "elapsed", lambda: began + 3600)
    sweep.sweep(at + timedelta(hours=2))
    assert orphan not in set(storage.files())
    assert b"".join(sweep.segments.storage.read(s.key, 0, 1) for s in run.segments.all())


def test_a_log_that_cannot_be_rolled_and_a_part_that_fails_stop_nothing_else(
    add_host, submit, monkeypatch, caplog
):
    monkeypatch.setattr(storage, "MB", 1)
    host = add_host()
    for _ in range(2):
        submit()
    broken, whole = Run.objects.order_by("pk")
    for run in (broken, whole):
        arrivals = [intake.Arrival(run.pk, frame(at, b"xyz")) for at in range(0, 30, 3)]
        intake.take(host.row.pk, 7, arrivals, timezone.now(), UnreadableFrames())
    LogPiece.objects.filter(run=broken).update(data=b"junk", z=True)
    monkeypatch.setattr(sweep.verify, "due_for_verification", lambda now: 1 / 0)
    sweep.sweep(timezone.now())
    assert whole.segments.exists() and not broken.segments.exists()
    assert broken.pk in caplog.text and "'verify_logs' failed" in caplog.text


@pytest.mark.usefixtures("kept_time")
def test_old_events_of_hosts_are_forgotten_but_never_the_newest(add_host, monkeypatch):
    """Lines are pruned by age and by number, but never the last ones of a host with few lines."""
    monkeypatch.setattr(host_history, "ALWAYS_KEPT", 3)
    monkeypatch.setattr(host_history, "MAX_KEPT", 6)
    quiet, loud, busy = (add_host(name).row for name in ("quiet", "loud", "busy"))
    now = timezone.now()
    for host, days in ((quiet, [200, 300, 400, 500]), (loud, [0] * 20), (busy, [1, 2, 3, 4, 200])):
        for number, age in enumerate(days):
            at = now - timedelta(days=age, seconds=number)
            HostEvent.objects.create(host=host, at=at, kind="up", text=str(number), actor="trainyard")
    sweep.sweep(now)
    left = {host.name: list(host.events.values_list("text", flat=True)) for host in (quiet, loud, busy)}
    assert left == {
        "quiet": ["0", "1", "2"],
        "loud": ["0", "1", "2", "3", "4", "5"],
        "busy": ["0", "1", "2", "3"],
    }


@pytest.mark.usefixtures("kept_time")
def test_a_hosts_own_chatter_never_pushes_out_what_an_admin_did(add_host, monkeypatch):
    monkeypatch.setattr(host_history, "ALWAYS_KEPT", 3)
    monkeypatch.setattr(host_history, "MAX_KEPT", 6)
    host, now = add_host("loud").row, timezone.now()
    HostEvent.objects.all().delete()
    for kind, days in (("added", 400), ("key_accepted", 300), ("drained", 1)):
        host_history.record(host.pk, kind, "", "alice", now - timedelta(days=days))
    for number in range(40):
        host_history.record(
            host.pk, "up", str(number), "trainyard", now - timedelta(minutes=number), limited=False
        )
    sweep.sweep(now)
    kinds = list(host.events.values_list("kind", flat=True))
    assert kinds == ["up"] * 6 + ["drained", "key_accepted", "added"]
