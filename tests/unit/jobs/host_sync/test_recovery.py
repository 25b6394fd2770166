"""A restored backup: hosts have runs unknown to the database. Nothing starts or stops before an admin confirms."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cryptography.fernet import Fernet
from django.utils import timezone

from agents.hosts import recovery, seals
from agents.hosts.seals import SealOwner
from agents.infra.refusals import Refused
from agents.links.control_plane import Arrival
from agents.models import HostEvent, Recovery
from jobs import services
from jobs.host_sync import recovery_mode, strays
from jobs.models import AuditEntry, Job, Proof, Run, Stray
from jobs.scheduling import capacity, scheduler
from tests.unit.jobs.conftest import spec
from tests.unit.jobs.fake_hosts import FakeRun, settle
from tests.unit.jobs.scheduling.test_moves import look

LOST = "1795000000000000001-workerpool0-0-a1-r0"


def inventory(host, control_plane):
    host.report(
        control_plane, [Arrival(run, fake_run.fact(host.boot_id)) for run, fake_run in host.runs.items()]
    )


def stray(host, log=b"", run=LOST):
    """A run that the console started on this host, as its seal proves."""
    order = {"gpus": [], "port": 29_999}
    return FakeRun(order, log=log, seal=seals.seal_of_run(SealOwner.of(host.row), run))


@pytest.fixture
def restored(control_plane, add_host, submit):
    """Host one runs a job from after the backup and has forgotten one from before it; another job waits."""
    one = add_host("one", cpus=4)
    known, forgotten = submit(spec("known")), submit(spec("forgotten"))
    settle(control_plane, one)
    del one.runs[f"{forgotten.pk}-workerpool0-0-a1-r0"]
    one.runs[LOST] = stray(one, log=b"hello\n")
    one.started_runs.append(LOST)
    waiting = submit(spec("waiting"), place=False)
    inventory(one, control_plane)
    return one, known, forgotten, waiting


def states(*jobs):
    return [Job.objects.get(pk=job.pk).state for job in jobs]


def test_no_crash_keeps_a_run_without_what_it_means(control_plane, add_host, monkeypatch):
    """Whoever sees the run in the database finds recovery mode on: later reports of the same run begin none."""
    one = add_host("one")
    one.runs[LOST] = stray(one)
    begun = []
    monkeypatch.setattr(strays, "_write", lambda *_: begun.append(recovery.in_recovery_mode()))
    inventory(one, control_plane)
    assert begun == [True]


def test_nothing_is_started_or_killed_before_the_admin_confirms(control_plane, restored):
    one, known, forgotten, waiting = restored
    assert recovery.in_recovery_mode()
    assert Recovery.objects.get().why == f"one has the run {LOST}, of which the database knows nothing."
    before = list(one.started_runs)
    services.cancel(known, "alice", timezone.now())
    for _ in range(3):
        look(control_plane, one)
    assert states(known, forgotten, waiting) == ["RUNNING", "RUNNING", "QUEUED"]
    assert one.started_runs == before, "nothing is started"
    assert {fake_run.phase for fake_run in one.runs.values()} == {"running"}, "nothing is killed"
    found = recovery_mode.differences()
    assert [stray.run for stray in found.strays] == [LOST]
    assert [run.job_id for run in found.missing] == [forgotten.pk]
    recovery_mode.confirm([], "root", timezone.now())
    Job.objects.update(due_at=timezone.now())
    control_plane._decider.submit([known.pk, forgotten.pk], place=True)
    look(control_plane, one)
    control_plane._decider.submit([known.pk, forgotten.pk], place=True)
    look(control_plane, one)
    assert states(known, forgotten, waiting) == ["CANCELLED", "RUNNING", "RUNNING"]
    assert one.runs[LOST].phase == "running", "nobody chose to stop it"
    [first, second] = Run.objects.filter(job=forgotten).order_by("number")
    assert (first.why, first.phase, second.phase) == ("lost", "closed", "running")
    assert "as root confirmed after a backup was restored" in first.message
    assert AuditEntry.objects.get(what="recovery.confirm").after == {
        "stopped": [],
        "taken_as_lost": [first.pk],
    }
    # The same report again changes nothing.
    inventory(one, control_plane)
    assert not recovery.in_recovery_mode()


def test_a_stop_ordered_before_recovery_waits_for_the_confirmation(control_plane, add_host, submit):
    one = add_host("one")
    job = submit(spec())
    settle(control_plane, one)
    run = job.runs.get().pk
    services.cancel(job, "alice", timezone.now())
    one.runs[LOST] = stray(one)
    inventory(one, control_plane)
    settle(control_plane, one)
    assert one.runs[run].phase == "running"
    recovery_mode.confirm([], "root", timezone.now())
    settle(control_plane, one)
    assert (one.runs[run].phase, one.runs[LOST].phase) == ("closed", "running")


def test_a_stray_is_stopped_by_choice(control_plane, restored):
    one, *_ = restored
    with pytest.raises(Refused, match="does not know"):
        recovery_mode.confirm(["1795000000000000002-workerpool0-0-a1-r0"], "root", timezone.now())
    assert recovery.in_recovery_mode()
    recovery_mode.confirm([LOST], "root", timezone.now())
    settle(control_plane, one)
    stray = Stray.objects.get()
    assert (one.runs[LOST].phase, stray.phase, stray.stop_by) == ("closed", "closed", "root")
    with pytest.raises(Refused, match="Nothing waits"):
        recovery_mode.confirm([], "root", timezone.now())


def test_a_run_with_an_impossible_name_starts_no_recovery_mode(control_plane, add_host, submit):
    one = add_host("one")
    one.report(control_plane, [Arrival("somebody-elses", FakeRun({"gpus": [], "port": 1}).fact("boot-1"))])
    assert not recovery.in_recovery_mode() and not Stray.objects.exists()


def test_a_run_of_a_host_that_was_added_again_is_known(control_plane, add_host, submit):
    one = add_host("one")
    job = submit(spec())
    settle(control_plane, one)
    again = add_host("again")
    again.runs = one.runs
    inventory(again, control_plane)
    assert not recovery.in_recovery_mode() and job.runs.get().host == one.row


def test_logs_of_known_runs_are_fetched_during_recovery(control_plane, restored):
    one, known, *_ = restored
    run = known.runs.get()
    one.runs[run.pk].log += b"more\n"
    settle_once = one.reconcile(control_plane)
    run.refresh_from_db()
    assert settle_once and run.log_stored == len(one.runs[run.pk].log)
    scheduler.schedule_quietly(timezone.now())


OTHER = "1795000000000000002-workerpool0-0-a1-r0"


@pytest.mark.parametrize(
    ("sealed_for", "proof", "why"),
    [
        (None, Proof.UNSEALED, "it carries no seal of ours"),
        ("another run", Proof.FALSE, "its seal is not ours for this run on this host"),
        ("another host", Proof.FALSE, "its seal is not ours for this run on this host"),
        ("another login", Proof.FALSE, "its seal is not ours for this run on this host"),
        ("another kind", Proof.FALSE, "its seal is not ours for this run on this host"),
        ("another deployment", Proof.FALSE, "its seal is not ours for this run on this host"),
        ("a key that is gone", Proof.FALSE, "its seal is not ours for this run on this host"),
    ],
)
def test_a_run_without_a_valid_seal_is_recorded_once_and_starts_no_recovery_mode(
    control_plane, add_host, submit, settings, sealed_for, proof, why
):
    one = add_host("one", cpus=4)
    bearer = SealOwner(one.row.pk, "gpu", "ssh-ed25519 AAAA")
    type(one.row).objects.filter(pk=one.row.pk).update(pinned_key=bearer.key)
    seal = {
        None: lambda: "",
        "another run": lambda: seals.seal_of_run(bearer, OTHER),
        "another host": lambda: seals.seal_of_run(replace(bearer, key="ssh-ed25519 BBBB"), LOST),
        "another login": lambda: seals.seal_of_run(replace(bearer, user="other"), LOST),
        "another kind": lambda: seals.seal_of_mark(bearer, 1),
        "another deployment": lambda: seals.seal_of_run(bearer, LOST),
        "a key that is gone": lambda: seals.seal_of_run(bearer, LOST),
    }[sealed_for]()
    if sealed_for == "another deployment":
        settings.DEPLOYMENT = "ty-other"
    if sealed_for == "a key that is gone":
        settings.FIELD_KEYS = [Fernet.generate_key().decode()]
    one.runs[LOST] = FakeRun({"gpus": [], "port": 29_999}, seal=seal)
    for _ in range(2):
        inventory(one, control_plane)
    assert not recovery.in_recovery_mode()
    [event] = HostEvent.objects.filter(host=one.row)
    assert event.kind == "unknown_run" and LOST in event.text and why in event.text
    found = recovery_mode.differences()
    assert [each.proof for each in found.unsealed] == [proof] and not found.strays
    job = submit(spec())
    settle(control_plane, one)
    assert states(job) == ["RUNNING"] and one.runs[LOST].phase == "running", (
        "all goes on, and it is left alone"
    )


def test_a_run_in_the_database_needs_no_seal(control_plane, add_host, submit):
    """Runs from before seals existed are adopted as before, and never started twice."""
    one = add_host("one")
    job = submit(spec())
    settle(control_plane, one)
    run = job.runs.get()
    assert one.runs[run.pk].seal == ""
    inventory(one, control_plane)
    settle(control_plane, one)
    assert states(job) == ["RUNNING"] and one.started_runs == [run.pk] and not HostEvent.objects.exists()


def test_a_run_of_a_host_that_was_added_after_the_backup_is_known_by_its_seal(control_plane, add_host):
    """The host has another row then, but the machine is the same."""
    one = add_host("one")
    seal = seals.seal_of_run(replace(SealOwner.of(one.row), host_id=one.row.pk + 1000), LOST)
    one.runs[LOST] = FakeRun({"gpus": [], "port": 1}, seal=seal)
    inventory(one, control_plane)
    assert recovery.in_recovery_mode()


def test_an_older_field_key_still_proves(control_plane, add_host, settings):
    one = add_host("one")
    one.runs[LOST] = stray(one)
    settings.FIELD_KEYS = [Fernet.generate_key().decode(), *settings.FIELD_KEYS]
    inventory(one, control_plane)
    assert recovery.in_recovery_mode()


def test_a_flood_of_forged_runs_is_bounded(control_plane, add_host):
    one = add_host("one")
    for number in range(strays.MAX_UNSEALED + 20):
        run = f"17950000000000{number:05}-workerpool0-0-a1-r0"
        one.runs[run] = FakeRun({"gpus": [], "port": 1})
    inventory(one, control_plane)
    inventory(one, control_plane)
    assert Stray.objects.count() == strays.MAX_UNSEALED
    kinds = list(HostEvent.objects.values_list("kind", flat=True))
    assert kinds.count("unknown_run") == strays.MAX_UNSEALED and kinds.count("unknown_runs") == 1
    assert len(kinds) == strays.MAX_UNSEALED + 1


def test_an_admin_ends_or_dismisses_a_stray_without_our_seal(control_plane, add_host):
    one, now = add_host("one"), timezone.now()
    one.runs |= {LOST: FakeRun({"gpus": [], "port": 1}), OTHER: FakeRun({"gpus": [], "port": 2})}
    inventory(one, control_plane)
    strays.stop(one.row, LOST, "root", now)
    strays.dismiss(one.row, OTHER, "root", now)
    settle(control_plane, one)
    inventory(one, control_plane)
    assert (one.runs[LOST].phase, one.runs[OTHER].phase) == ("closed", "running")
    assert [each.run for each in recovery_mode.differences().unsealed] == [LOST]
    assert list(AuditEntry.objects.order_by("id").values_list("what", "subject")) == [
        ("stray.stop", "one"),
        ("stray.dismiss", "one"),
    ]
    with pytest.raises(Refused, match="is over"):
        strays.stop(one.row, LOST, "root", now)
    with pytest.raises(Refused, match="has no run nothing"):
        strays.stop(one.row, "nothing", "root", now)


def test_an_admin_may_declare_what_no_host_can_prove(control_plane, add_host, submit):
    one = add_host("one")
    with pytest.raises(Refused, match="why"):
        recovery_mode.begin("  ", "root", timezone.now())
    recovery_mode.begin("restored from Friday", "root", timezone.now())
    job = submit(spec())
    settle(control_plane, one)
    assert recovery.in_recovery_mode() and states(job) == ["QUEUED"]
    with pytest.raises(Refused, match="already"):
        recovery_mode.begin("again", "root", timezone.now())
    recovery_mode.confirm([], "root", timezone.now())
    assert AuditEntry.objects.get(what="recovery.begin").after == {"why": "restored from Friday"}


def test_resources_of_our_stray_are_not_given_to_others(control_plane, add_host, submit):
    """After the confirmation, a stray goes on: its GPU, CPUs and memory are taken until it is closed."""
    one = add_host("one", cpus=8, gpus=2)
    lost = FakeRun(
        {"gpus": ["GPU-one-0"], "port": 29_999}, seal=seals.seal_of_run(SealOwner.of(one.row), LOST)
    )
    lost.exit = {"cpus": 5.0, "memory_mb": 9_000, "gpus": ["GPU-one-0"], "port": 29_500}
    forged = FakeRun({"gpus": [], "port": 1})
    forged.exit = {"cpus": 8.0, "memory_mb": 16_000, "gpus": ["GPU-one-1"]}
    one.runs |= {LOST: lost, OTHER: forged}
    inventory(one, control_plane)
    # As a version left the row that did not store what strays hold.
    Stray.objects.filter(run=LOST).update(cpus=0, memory_mb=0, gpu_uuids=[], port=None)
    inventory(one, control_plane)
    recovery_mode.confirm([], "root", timezone.now())
    [view] = capacity.read_capacity().views
    assert (view.used_cpus, view.used_memory_mb, view.used_gpus) == (5.0, 9_000, {"GPU-one-0"})
    assert view.used_ports == {29_500}
    fits, waits = submit(spec(machine="custom-3-6000", gpus=1)), submit(spec(machine="custom-1-1000"))
    assert states(fits, waits) == ["PENDING", "QUEUED"] and fits.runs.get().gpu_uuids == ["GPU-one-1"]
    lost.phase = "closed"
    inventory(one, control_plane)
    scheduler.schedule(timezone.now())
    assert states(waits) == ["PENDING"]


def test_nonsense_about_the_resources_of_a_stray_is_ignored(control_plane, add_host):
    one = add_host("one")
    lost = one.runs[LOST] = stray(one)
    lost.exit = {"cpus": float("inf"), "memory_mb": -1, "gpus": [7, "x" * 200, None], "port": "high"}
    inventory(one, control_plane)
    row = Stray.objects.get()
    assert (row.cpus, row.memory_mb, row.gpu_uuids, row.port) == (0, 0, ["x" * 80], None)
