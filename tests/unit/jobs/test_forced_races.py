"""Each lock and each condition of a write that keeps two processes apart, with the race that it is for.

The first of two threads is stopped at the statement that matters, and the second acts meanwhile: nothing is left to
luck. `make mutants` takes each guard out in turn, on PostgreSQL; then these tests fail.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
from django.db import transaction
from django.utils import timezone

from agents.infra.clock import Clock
from agents.infra.refusals import Exhausted, Refused
from agents.links import leases
from agents.links.control_plane import Arrival
from agents.models import Gpu, GpuState, Host, HostStatus, Recovery
from jobs import idle_rule, services, sweep
from jobs.host_sync import intake, lost_hosts, recovery_mode, strays
from jobs.host_sync.apply_reports import UnreadableFrames
from jobs.host_sync.fast_append import FastAppender
from jobs.lifecycle import advance, snapshot
from jobs.logs import reader, segments, storage
from jobs.maintenance import cordon_and_drain, gpus
from jobs.models import (
    AuditEntry,
    Job,
    LogGap,
    LogPiece,
    LogSegment,
    MonthlyUse,
    Notification,
    NotificationTarget,
    Run,
    Stray,
    Tick,
    Transition,
)
from jobs.notifications import create, delivery, email_opt_in
from jobs.projects import projects, quotas, usage
from jobs.rules.scheduling.quota import Metric
from jobs.scheduling import machine_types, scheduler
from tests.harness.races import race
from tests.unit.jobs.conftest import spec
from tests.unit.jobs.fake_hosts import frame, settle
from tests.unit.jobs.notifications.test_notifications import allowed, cancel, hook, tell

__all__ = ["allowed", "hook", "tell"]

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(240)]


def whole(act, *args, **options):
    """The act in one transaction, as its callers have it."""

    def acts():
        with transaction.atomic():
            return act(*args, **options)

    return acts


def kinds(results):
    return [type(each).__name__ if isinstance(each, Exception) else "done" for each in results]


# -- people ------------------------------------------------------------------------------------------------------------


def test_two_submits_do_not_share_the_last_place_of_a_queue(project, alice, add_host):
    add_host()
    quotas.set_limit(quotas.QuotaTarget(project), Metric.QUEUED, "", 1, "root", timezone.now())
    one = whole(services.submit, project, alice, spec(), "default", None, timezone.now())
    assert kinds(race(one, one, before="INSERT jobs_job")) == ["done", Exhausted.__name__]
    assert Job.objects.count() == 1


def test_one_request_that_comes_twice_at_once_is_one_job(project, alice, add_host):
    add_host()
    one = whole(services.submit, project, alice, spec(), "default", "the same", timezone.now())
    mine, theirs = race(one, one, after="INSERT jobs_job")
    assert mine.pk == theirs.pk and Job.objects.count() == 1


def test_of_two_people_who_cancel_one_is_named(add_host, submit, control_plane):
    host, job = add_host(), submit()
    settle(control_plane, host)
    cancels = [partial(services.cancel, job, name, timezone.now()) for name in ("alice", "bob")]
    assert kinds(race(*cancels, after="UPDATE jobs_job cancel_requested_at")) == ["done", "done"]
    job.refresh_from_db()
    assert job.cancel_requested_by == "alice"


def test_two_changes_of_a_project_do_not_undo_each_other(project):
    first = whole(projects.change, project, "root", timezone.now(), title="Ours")
    second = whole(projects.change, project, "root", timezone.now(), weight=3.0)
    assert kinds(race(first, second, before="UPDATE jobs_project")) == ["done", "done"]
    project.refresh_from_db()
    assert (project.title, project.weight) == ("Ours", 3.0)


def test_of_two_admins_who_act_on_a_gpu_the_second_sees_what_the_first_did(add_host):
    add_host(gpus=1)
    Gpu.objects.update(state=GpuState.CLEANING)
    gpu = Gpu.objects.get()
    use = whole(gpus.act, gpu, "use", "root", timezone.now())
    again = whole(gpus.act, gpu, "recheck", "ruth", timezone.now())
    assert kinds(race(use, again, before="UPDATE agents_gpu")) == ["done", Refused.__name__]
    assert Gpu.objects.get().state == GpuState.OK


def test_a_stray_that_two_admins_stop_is_stopped_by_one(add_host):
    host, now = add_host().row, timezone.now()
    Stray.objects.create(host=host, run="gone-1", found_at=now, phase="running", proof="sealed")
    stops = [whole(strays.stop, host, "gone-1", name, now) for name in ("root", "ruth")]
    assert kinds(race(*stops, before="UPDATE jobs_stray")) == ["done", "done"]
    assert Stray.objects.get().stop_by == "root"
    assert [row.actor for row in AuditEntry.objects.filter(what="stray.stop")] == ["root"]


def test_of_two_admins_who_change_a_rule_the_second_changes_what_the_first_said(project):
    rules = [whole(idle_rule.set_rule, project, n, False, "root", timezone.now()) for n in (10, 20)]
    assert race(*rules, before="UPDATE jobs_project") == (None, None)
    first, second = AuditEntry.objects.filter(what="project.idle_rule").order_by("pk")
    assert (first.after["minutes"], second.before["minutes"]) == (10, 10)


def test_of_two_admins_who_change_a_machine_type_the_second_changes_what_the_first_said():
    def define(cpus):
        return whole(machine_types.define, "big", "", cpus, 1000, "", 0, "", "root", timezone.now())

    assert {type(each).__name__ for each in race(define(1), define(2), after="INSERT jobs_machinetype")} == {
        "MachineType"
    }
    race(define(3), define(4), before="UPDATE jobs_machinetype")
    told = AuditEntry.objects.filter(what="machine_type.change").order_by("pk")
    assert [(row.before["cpus"], row.after["cpus"]) for row in told] == [(1, 2), (2, 3), (3, 4)]


def test_a_project_that_two_archive_is_archived_once(project):
    archive = whole(projects.archive, project, "root", timezone.now())
    race(archive, archive, after="UPDATE jobs_project archived_at")
    assert AuditEntry.objects.filter(what="project.archive").count() == 1


def test_two_letters_at_once_are_two_of_the_day(alice):
    target = NotificationTarget(user=alice)
    count = whole(email_opt_in._count_letter, target, timezone.now())
    count()
    assert race(count, count, before="UPDATE jobs_tick") == (None, None)
    assert Tick.objects.get(name=f"confirmations-u{alice.pk}").serial == 3


def test_a_host_is_not_cordoned_in_the_middle_of_a_pass(add_host, submit):
    """Whoever cordoned a host must find there what is on it."""
    host = add_host().row
    submit(place=False)

    def cordon():
        cordon_and_drain.cordon(host, "broken", "root", timezone.now())
        return Run.objects.count()

    assert race(partial(scheduler.schedule, timezone.now()), cordon, before="INSERT jobs_run")[1] == 1


def test_recovery_mode_is_confirmed_by_one_of_two_admins():
    Recovery.objects.create(since=timezone.now(), why="a backup was restored")
    root, ruth = (partial(recovery_mode.confirm, [], name, timezone.now()) for name in ("root", "ruth"))
    assert kinds(race(root, ruth, before="UPDATE agents_recovery")) == ["done", Refused.__name__]
    assert [row.actor for row in AuditEntry.objects.filter(what="recovery.confirm")] == ["root"]
    assert Recovery.objects.get().confirmed_by == "root"


def test_recovery_mode_is_begun_by_one_of_two_admins():
    root, ruth = (partial(recovery_mode.begin, "why", name, timezone.now()) for name in ("root", "ruth"))
    assert kinds(race(root, ruth, before="INSERT agents_recovery")) == ["done", Refused.__name__]
    assert Recovery.objects.get().why == "root says: why"


def test_a_restart_that_begins_while_its_host_is_declared_gone_is_given_up_with_it(
    add_host, submit, control_plane, settings
):
    """`declare_lost` takes no locks of jobs: its caller took those of all jobs with something on the host."""
    settings.TRAINYARD = replace(settings.TRAINYARD, retry_wait_s=30.0)
    host, job = add_host("h1"), submit()
    for _ in range(2):
        settle(control_plane, host)
        host.end(control_plane, Run.objects.latest("number").pk, exit_signal=9)
        settle(control_plane, host)
    waiting = Run.objects.latest("number")
    assert waiting.restart_at is not None
    Host.objects.filter(pk=host.row.pk).update(status=HostStatus.UNREACHABLE, status_since=timezone.now())
    restart = partial(advance.advance, [job.pk], Clock(waiting.restart_at + timedelta(seconds=1)))
    gone = partial(cordon_and_drain.declare_gone, host.row, "h1", "root", timezone.now())
    race(restart, gone, before="INSERT jobs_run")
    assert not Run.objects.filter(host=host.row, declared_lost_at=None).exclude(phase="closed").exists()
    assert Run.objects.filter(number=waiting.number + 1, declared_lost_at__isnull=False).exists()


# -- deciders and sweepers ---------------------------------------------------------------------------------------------


def test_two_processes_that_decide_about_a_job_decide_once(add_host, submit, control_plane):
    host, job = add_host(), submit()
    settle(control_plane, host)
    Job.objects.filter(pk=job.pk).update(cancel_requested_at=timezone.now(), cancel_requested_by="alice")
    decide = partial(advance.advance, [job.pk], Clock())
    assert kinds(race(decide, decide, before="UPDATE jobs_job version")) == ["done", "done"]
    assert Transition.objects.filter(job=job, subject="job", to_state="CANCELLING").count() == 1


def test_a_decision_waits_for_facts_that_are_being_written(add_host, submit, control_plane):
    """`snapshot.lock` waits for whoever changes the job, and reads after that."""
    job = submit()

    def change():
        snapshot.lock_jobs([job.pk])
        Job.objects.filter(pk=job.pk).update(cancel_requested_at=timezone.now())

    read = whole(lambda: snapshot.lock([job.pk])[0].job.cancel_requested_at)
    _, seen = race(whole(change), read, before="UPDATE jobs_job")
    assert seen is not None


def test_a_due_job_is_taken_by_one_sweeper(submit):
    job, now = submit(place=False), timezone.now()
    Job.objects.filter(pk=job.pk).update(due_at=now)
    take = partial(sweep.take_due, now)
    assert race(take, take, before="UPDATE jobs_job due_at") == ([job.pk], [])


def test_a_periodic_work_is_claimed_by_one_sweeper():
    now = timezone.now()
    Tick.objects.create(name="t", at=now - timedelta(hours=1))
    claim = whole(sweep.claim, "t", timedelta(minutes=1), now)
    assert race(claim, claim, after="UPDATE jobs_tick") == (True, False)


def test_the_first_claim_ever_of_a_periodic_work_is_one_too():
    claim = whole(sweep.claim, "new", timedelta(minutes=1), timezone.now())
    assert race(claim, claim, after="INSERT jobs_tick") == (True, False)


def test_what_a_run_held_is_summed_by_one_of_two_sweepers(add_host, submit, control_plane):
    host = add_host()
    submit()
    settle(control_plane, host)
    host.end(control_plane, Run.objects.get().pk, exit_code=0)
    settle(control_plane, host)
    [row] = usage.unfolded()
    fold = partial(usage.fold, timezone.now())
    assert race(fold, fold, before="UPDATE jobs_monthlyuse") == (1, 0)
    assert MonthlyUse.objects.get().cpu_seconds == pytest.approx(row.seconds * row.cpus)


# -- notifications -----------------------------------------------------------------------------------------------------


@pytest.fixture
def notification(submit, hook, tell):
    tell("hook", hook.url())
    cancel(submit())
    create.create_from_history(timezone.now())
    return Notification.objects.get()


def test_a_notification_is_claimed_by_one_sender(notification):
    claim = whole(delivery.claim, notification.pk, timezone.now())
    mine, theirs = race(claim, claim, after="UPDATE jobs_notification")
    assert mine is not None and theirs is None


def test_the_result_of_a_sender_that_was_late_does_not_count(notification):
    now = timezone.now()
    late = delivery.claim(notification.pk, now)
    again = now + delivery.CLAIMED_FOR + timedelta(seconds=1)
    claim = whole(delivery.claim, notification.pk, again)
    failed = partial(delivery.record_result, late, False, "no", True, again)
    assert kinds(race(claim, failed, after="UPDATE jobs_notification")) == ["done", "done"]
    assert Notification.objects.get().given_up_at is None


# -- hosts and logs ----------------------------------------------------------------------------------------------------


@pytest.fixture
def printed(logged):
    """A run with seven pieces of log, one more than a segment holds, and its host."""
    run, give = logged
    give(*(frame(100 * n, b"%d" % n * 100) for n in range(7)))
    return run


def take_over(host):
    """Another dispatcher takes the host, whose lease has run out."""
    later = timezone.now() + timedelta(hours=1)
    return partial(leases.renew_and_take, "dispatcher-2", {}, later, 15.0, False)


def test_nobody_takes_a_host_while_its_holder_writes_a_batch(printed):
    """What was written after the other had the lease would be written without it."""
    Host.objects.update(pinned_key="a key")
    batch = [Arrival(printed.pk, frame(700, b"x" * 10))]
    token = Host.objects.get().lease_token
    at_write = []

    def write():
        taken = intake.take(printed.host_id, 7, batch, timezone.now(), UnreadableFrames())
        return taken.current

    def steal():
        changes = take_over(printed.host)()
        at_write.append(Run.objects.get(pk=printed.pk).log_stored)
        return changes.held

    current, held = race(write, steal, before="UPDATE jobs_run")
    assert current and held[printed.host_id] > token
    assert at_write == [710], "the other had the lease before the batch was written"


def test_of_two_dispatchers_with_the_same_bytes_one_stores_them(printed):
    host, pk = printed.host_id, printed.pk
    batch = [Arrival(pk, frame(700, b"the end"))]

    def append():
        appender = FastAppender()
        appender.learn({pk: 700})
        return appender.take(host, 7, batch) is not None

    assert race(whole(append), append, after="UPDATE jobs_run") == (True, False)
    run = Run.objects.get(pk=pk)
    assert run.log_stored == 707 and b"".join(reader.stream(run, 700, 707)) == b"the end"
    assert LogPiece.objects.filter(run=pk, start=700).count() == 1


def test_of_two_workers_that_roll_a_log_one_gives_up(printed):
    roll = partial(segments.roll, printed.pk)
    assert kinds(race(roll, roll, before="UPDATE jobs_run log_rolled")) == ["done", "done"]
    assert LogSegment.objects.count() == 1
    assert len(b"".join(reader.stream(Run.objects.get(), 0, 700))) == 700


def test_pieces_that_are_joined_while_they_are_rolled_do_not_come_back(printed):
    join, roll = partial(segments.compact, printed.pk), partial(segments.roll, printed.pk)
    assert kinds(race(join, roll, before="DELETE jobs_logpiece")) == ["done", "done"]
    rolled = Run.objects.get().log_rolled
    assert not LogPiece.objects.filter(start__lt=rolled).exists()
    assert len(b"".join(reader.stream(Run.objects.get(), 0, 700))) == 700


@pytest.mark.parametrize(
    "work, statement",
    [(segments.roll, "INSERT jobs_logsegment"), (segments.compact, "INSERT jobs_logpiece")],
    ids=["rolled", "joined"],
)
def test_of_a_log_that_is_rolled_or_joined_while_its_job_is_deleted_nothing_stays(printed, work, statement):
    Job.objects.update(state="SUCCEEDED", due_at=None)
    Run.objects.update(phase="closed", log_size=700, log_complete_at=timezone.now())
    gone = partial(services.delete, printed.job, "alice", timezone.now())
    assert kinds(race(partial(work, printed.pk), gone, before=statement)) == ["done", "done"]
    assert not LogPiece.objects.exists() and not LogSegment.objects.exists()
    assert not [path for path in storage.files() if path.startswith(f"{printed.job_id}/")]


def test_bytes_that_come_while_their_run_is_closed_as_lost_are_not_beside_the_gap(printed):
    Run.objects.update(phase="running", boot_id="boot-1", log_size=800)
    Host.objects.update(boot_id="boot-2")
    batch = [Arrival(printed.pk, frame(700, b"x" * 50))]
    close = partial(lost_hosts.close_lost_runs, [printed.pk], timezone.now())
    store = partial(intake.take, printed.host_id, 7, batch, timezone.now(), UnreadableFrames())
    assert kinds(race(close, store, before="INSERT jobs_loggap")) == ["done", "done"]
    assert list(LogGap.objects.values_list("start", "end")) == [(700, 800)]
    assert not LogPiece.objects.filter(end__gt=700).exists()


def test_bytes_that_come_while_their_job_is_deleted_are_not_stored(printed, control_plane, add_host):
    run = printed
    Job.objects.update(state="SUCCEEDED", due_at=None)
    Run.objects.update(phase="closed", log_size=800)
    batch = [Arrival(run.pk, frame(700, b"x" * 50))]
    gone = partial(services.delete, run.job, "alice", timezone.now())
    store = partial(intake.take, run.host_id, 7, batch, timezone.now(), UnreadableFrames())
    assert kinds(race(gone, store, before="UPDATE jobs_job deleted_at")) == ["done", "done"]
    assert not LogPiece.objects.exists() and Job.every.get().deleted_at
