"""Trainyard's time is set right at once: forward at any time, back while nothing runs, and no job's outcome changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from django.utils import timezone

from agents import clock_keeper, time_doubt
from agents.infra import clock
from agents.infra.refusals import Refused
from agents.models import ClockJump, Dispatcher, Host, HostEvent
from jobs import sweep
from jobs.artifacts import buckets, objects, uploads
from jobs.artifacts.objects import About
from jobs.artifacts.uploads import Announced
from jobs.lifecycle.advance import advance
from jobs.maintenance import set_clock
from jobs.models import (
    AuditEntry,
    GpuHour,
    LocationHour,
    Notification,
    NotificationTarget,
    Reservation,
    ShellSession,
    Tick,
    Upload,
)
from jobs.rules.lifecycle.states import JobState
from tests.harness.races import race
from tests.unit.agents.test_clock_keeper import NOW, Machine, world
from tests.unit.console.views.example_rows import a_host
from tests.unit.jobs.conftest import spec
from tests.unit.jobs.fake_hosts import settle

__all__ = ["world"]

DAYS_S = 2 * 86400.0


def right(seconds=0.0):
    """The true time, as the test began."""
    return datetime.fromtimestamp(NOW + seconds, UTC)


@pytest.fixture
def wrong(world, db, monkeypatch):
    """wrong(by): two processes of a machine that has had its time from a clock that was wrong by so many seconds. The
    clock is right again; Trainyard's time is not, because it goes on."""

    def make(by_s):
        machine = Machine()
        world.database_wrong_s = machine.wrong_s = by_s
        web, worker = world.process(machine), world.process(machine)
        world.look(web, worker, seconds=10)
        world.database_wrong_s = machine.wrong_s = 0.0
        world.look(web, worker, seconds=4)
        monkeypatch.setattr(clock_keeper, "this_boot", lambda: machine.name)
        ClockJump.objects.all().delete()
        return web, worker

    return make


def running_job(add_host, submit, control_plane):
    host = add_host()
    job = submit(
        {**spec("sleep 9"), "jobSpec": {**spec("sleep 9")["jobSpec"], "scheduling": {"timeout": "3600s"}}}
    )
    settle(control_plane, host)
    job.refresh_from_db()
    assert job.state == JobState.RUNNING
    return job


def test_forward_while_processes_run_and_no_job_is_over_its_limit(
    world, wrong, add_host, submit, control_plane
):
    web, worker = wrong(-DAYS_S)
    job = running_job(add_host, submit, control_plane)
    Dispatcher.objects.create(name="d", seen_at=timezone.now())
    assert set_clock.set_right("root") == pytest.approx(DAYS_S, abs=2)
    assert world.look(web, worker, seconds=20) == pytest.approx(34, abs=2)
    assert clock.unsure_since() == pytest.approx(right(14), abs=timedelta(seconds=2))
    # One line about the step itself, and none about a clock that nobody has set.
    assert [clock_keeper.text_of(jump) for jump in ClockJump.objects.all()] == [
        "Trainyard's time was set forward by 2 days, 0:00:00."
    ]
    advance([job.pk], clock.Clock())
    job.refresh_from_db()
    assert job.state == JobState.RUNNING
    assert AuditEntry.objects.get(what="clock.set").actor == "root"


@pytest.mark.parametrize("runs", ["dispatcher", "worker"])
def test_back_is_refused_while_a_process_was_seen_lately(wrong, runs):
    wrong(DAYS_S)
    if runs == "dispatcher":
        Dispatcher.objects.create(name="gpu-head", seen_at=timezone.now())
    else:
        Tick.objects.update_or_create(name="sweep", defaults={"at": timezone.now()})
    before = timezone.now()
    with pytest.raises(Refused, match="only while nothing runs") as refused:
        set_clock.set_right("root")
    assert ("dispatcher gpu-head" if runs == "dispatcher" else "a worker") in refused.value.message
    assert "2 days, 0:00:00" in refused.value.message and "18 s an hour" in refused.value.message
    assert timezone.now() - before < timedelta(seconds=1) and not AuditEntry.objects.exists()


def test_back_while_nothing_runs_brings_what_lies_in_the_future_to_the_new_time(
    world, wrong, add_host, submit, control_plane
):
    wrong(DAYS_S)
    job = running_job(add_host, submit, control_plane)
    Tick.objects.update_or_create(name="sweep", defaults={"at": timezone.now()})
    Dispatcher.objects.create(name="d", seen_at=timezone.now())
    Host.objects.update(seen_at=timezone.now(), monotonic_at=timezone.now(), monotonic_offset_s=5.0)
    world.true += 60  # everything was stopped a minute ago
    assert set_clock.set_right("root") == pytest.approx(-DAYS_S, abs=2)
    now = timezone.now()
    assert now == pytest.approx(right(world.true - NOW), abs=timedelta(seconds=2))
    job.refresh_from_db()
    assert job.due_at <= now and job.started_at <= now and Tick.objects.get(name="sweep").at <= now
    host = Host.objects.get()
    assert host.seen_at <= now and host.monotonic_at is None
    # A process that starts later takes the new time, and never goes back to the old one.
    again = world.process(Machine("b"))
    assert world.look(again, seconds=10) == pytest.approx(world.true - NOW, abs=2)
    advance([job.pk], clock.Clock())
    job.refresh_from_db()
    assert (job.state, job.error_message) == (JobState.RUNNING, "")


def a_stored_object(project):
    bucket = buckets.create(project, "ours", "alice", timezone.now())
    return objects.put_object(project, bucket.name, "a", [b"bytes"], by="alice")


def test_what_was_stored_while_the_time_was_behind_is_as_old_as_it_is(world, wrong, project):
    web, worker = wrong(-40 * DAYS_S)
    row = a_stored_object(project)
    Host.objects.filter(pk=a_host().pk).update(clock_offset_s=40 * DAYS_S + 1)
    set_clock.set_right("root")
    world.look(web, worker, seconds=10)
    row.refresh_from_db()
    assert timezone.now() - row.created_at < timedelta(minutes=1)
    assert Host.objects.get().clock_offset_s == pytest.approx(1, abs=2)


def test_what_was_stored_while_the_time_was_ahead_ends_some_day(world, wrong, project):
    wrong(40 * DAYS_S)
    row = a_stored_object(project)
    Reservation.objects.create(
        name="one-dead", project=project, size=1, until=timezone.now() + timedelta(minutes=10)
    )
    world.true += 60
    set_clock.set_right("root")
    row.refresh_from_db()
    now = timezone.now()
    assert row.created_at <= now and row.blob.touched_at <= now
    assert Reservation.objects.get().until <= now + timedelta(days=7)


@pytest.fixture
def aged(project, add_host, submit, control_plane):
    """A row of each kind that is deleted by its age, as they are written at this moment."""

    def make():
        job = running_job(add_host, submit, control_plane)
        now = timezone.now()
        row = a_stored_object(project)
        host = Host.objects.get()
        target = NotificationTarget.objects.create(
            project=project, way="email", sealed=b"", shown="a", created_at=now, created_by="root"
        )
        uploads.begin(row.bucket, "b", About(), Announced(), job.owner, now)
        ShellSession.objects.create(
            run=job.runs.get(),
            opened_at=now,
            seen_at=now,
            closed_at=now,
            recording_stored=5,
            recording_file="1/2",
        )
        Notification.objects.create(target=target, key="k", event="test", text={}, made_at=now)
        HostEvent.objects.create(host=host, at=now, kind="test", text="", actor="root")
        ClockJump.objects.create(at=now, clock=time_doubt.OWN, seconds=5.0)
        return job

    return make


def times():
    """Of all rows that are deleted by their age."""
    found = {
        f"{rows.model.__name__}.{column}": list(rows.values_list(column, flat=True))
        for rows, columns in set_clock.AGED
        for column in columns
    }
    assert all(found.values()), "there is a row of each kind"
    return [(name, at) for name, several in found.items() for at in several]


def test_what_was_written_while_the_time_was_behind_is_not_deleted_as_old(world, wrong, aged):
    """Forty days behind: after the step each recording, upload and line would look that old."""
    web, worker = wrong(-40 * DAYS_S)
    aged()
    set_clock.set_right("root")
    world.look(web, worker, seconds=10)
    now = timezone.now()
    assert [name for name, at in times() if not now - timedelta(minutes=2) < at <= now] == []
    world.true += DAYS_S
    world.look(web, worker)
    assert time_doubt.why(timezone.now()) == ""
    sweep.tidy(clock.Clock(timezone.now()))
    sweep.tidy_stored_files(clock.Clock(timezone.now()))
    assert ShellSession.objects.get().recording_stored and HostEvent.objects.filter(kind="test").exists()
    assert Upload.objects.exists() and Notification.objects.exists()


def test_what_was_written_while_the_time_was_ahead_is_not_kept_for_ever(world, wrong, aged):
    """Forty days ahead: its age would begin in forty days, and the time would be in doubt until then."""
    wrong(40 * DAYS_S)
    aged()
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    GpuHour.objects.create(start=hour, host=Host.objects.get(), held_s=1.0)
    LocationHour.objects.create(start=hour, location=Host.objects.get().location, gpus=1, held_s=1.0)
    world.true += 60
    set_clock.set_right("root")
    now = timezone.now()
    assert [name for name, at in times() if at > now] == []
    assert not GpuHour.objects.exists() and not LocationHour.objects.exists(), (
        "of hours that are still to come"
    )
    again = world.process(Machine("b"))
    world.look(again, seconds=10)
    assert "was set at" in time_doubt.why(timezone.now())
    world.true += DAYS_S
    world.look(again)
    assert time_doubt.why(timezone.now()) == ""
    assert clock_keeper.recent_jumps(timezone.now()) == [], "they are shown for a day"


def test_nothing_is_set_where_nothing_is_wrong(wrong):
    wrong(0.0)
    with pytest.raises(Refused, match="nothing to set"):
        set_clock.set_right("root")


@pytest.mark.django_db(transaction=True)
def test_a_process_that_notes_its_time_at_that_moment_does_not_set_it_back(world, wrong):
    web, worker = wrong(-DAYS_S)
    world.true += clock_keeper.NOTE_EVERY_S
    world.on, keeper = web
    set_right = partial(set_clock.set_right, "root")
    noted, step_s = race(keeper.look, set_right, before="UPDATE agents_machineclock")
    assert noted is True and step_s == pytest.approx(DAYS_S, abs=2)
    assert world.look(web, worker, seconds=4) == pytest.approx(14 + clock_keeper.NOTE_EVERY_S + 4, abs=2)
