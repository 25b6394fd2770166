"""A machine on which each project has a login of its own: jobs of a project run under no other login."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.utils import timezone

from agents.infra.refusals import Refused
from agents.links.control_plane import Arrival
from agents.models import Gpu, GpuState, Host, HostEvent, HostStatus
from jobs import services
from jobs.host_sync import intake, lost_hosts, wanted
from jobs.host_sync.apply_reports import UnreadableFrames
from jobs.lifecycle import snapshot
from jobs.maintenance import cordon_and_drain, location_bindings, logins
from jobs.maintenance.remove_host import remove_host
from jobs.models import AuditEntry, GpuClaim, HostMaintenance, Job, Membership, Project, Role, Run
from jobs.rules.lifecycle.states import JobState
from jobs.scheduling import scheduler
from tests.unit.jobs.conftest import spec
from tests.unit.jobs.fake_hosts import FakeHost, settle

TEMPLATE = "train-{project}"


@pytest.fixture
def vision(db):
    return Project.objects.create(name="vision", created_at=timezone.now())


@pytest.fixture
def split(add_host, project, vision):
    """split(): a machine with a login for the project default, and one for vision, both up. By name."""

    def make(name="h1", **options):
        machine = add_host(name, **options)
        Host.objects.filter(pk=machine.row.pk).update(pinned_key="ssh-ed25519 AAAA", facts={})
        logins.set_template(machine.row, TEMPLATE, "root", timezone.now())
        found = {"machine": machine}
        for row in machine.row.logins.all():
            Host.objects.filter(pk=row.pk).update(
                status=HostStatus.UP, boot_id="boot-1", lease_owner="dispatcher-1", lease_token=7
            )
            row.refresh_from_db()
            found[row.user] = FakeHost(row)
        return found

    return make


def run_job(project, document=None):
    user, _ = User.objects.get_or_create(username=f"{project.name}-person")
    Membership.objects.get_or_create(project=project, user=user, defaults={"role": Role.SUBMITTER})
    job = services.submit(project, user, document or spec(), "default", None, timezone.now())
    scheduler.schedule(timezone.now())
    job.refresh_from_db()
    return job


def user_of(job):
    return {run.host.user for run in Run.objects.filter(job=job).select_related("host")}


def test_a_template_makes_a_login_for_each_project_with_the_key_of_the_machine(split, project, vision):
    found = split()
    machine = found["machine"].row
    rows = Host.objects.filter(machine=machine).order_by("user")
    assert [(row.user, row.name, row.address, row.project_login.project) for row in rows] == [
        ("train-default", "h1", machine.address, project),
        ("train-vision", "h1", machine.address, vision),
    ]
    assert {row.pinned_key for row in rows} == {"ssh-ed25519 AAAA"}
    assert list(Host.machines.all()) == [machine]
    entry = AuditEntry.objects.get(what="host.logins")
    assert (entry.before, entry.after) == ("", TEMPLATE)


def test_jobs_run_under_the_login_of_their_project_and_share_the_resources_of_the_machine(
    split, project, vision, control_plane
):
    found = split(cpus=2, gpus=2)
    ours, theirs = run_job(project, spec(gpus=1)), run_job(vision, spec(gpus=1))
    assert (user_of(ours), user_of(theirs)) == ({"train-default"}, {"train-vision"})
    ports = set(Run.objects.values_list("port", flat=True))
    assert len(ports) == 2, "the logins of a machine share its ports"
    assert GpuClaim.objects.values("gpu").distinct().count() == 2
    waiting = run_job(vision, spec(gpus=1))
    assert waiting.state == JobState.QUEUED and "0 NVIDIA_L4 free" in waiting.reason
    assert "0 CPUs free" in waiting.reason, "what the runs of its logins hold is taken from the machine"
    settle(control_plane, *found.values())
    for job in (ours, theirs):
        job.refresh_from_db()
        assert job.state == JobState.RUNNING
    assert not found["machine"].started_runs
    assert len(found["train-vision"].started_runs) == len(found["train-default"].started_runs) == 1


def test_a_login_is_told_of_no_run_of_another_login(split, project, vision):
    found = split()
    ours, theirs = run_job(project), run_job(vision)
    of_vision = wanted.wanted(found["train-vision"].row.pk)
    assert set(of_vision) == set(Run.objects.filter(job=theirs).values_list("pk", flat=True))
    assert wanted.wanted(found["machine"].row.pk) == {}
    assert ours.pk != theirs.pk


def test_without_a_login_that_is_up_a_job_waits_and_says_so(split, project, vision):
    found = split()
    Host.objects.filter(pk=found["train-vision"].row.pk).update(status=HostStatus.AUTH_FAILED)
    job = run_job(vision)
    assert job.state == JobState.QUEUED
    assert "The project has no login that is up on h1." in job.reason
    assert run_job(project).state == JobState.PENDING, "the other project is not held up"
    Host.objects.filter(pk=found["train-vision"].row.pk).update(status=HostStatus.UP)
    scheduler.schedule(timezone.now())
    job.refresh_from_db()
    assert job.state == JobState.PENDING


def test_hosts_with_one_login_for_all_serve_beside_those_with_more(split, add_host, vision):
    found = split(cpus=1)
    add_host("open", cpus=1)
    jobs = [run_job(vision) for _ in range(3)]
    assert {run.host.user for run in Run.objects.select_related("host")} == {"gpu", "train-vision"}
    assert [job.state for job in jobs] == [JobState.PENDING, JobState.PENDING, JobState.QUEUED]
    assert found["machine"].row.pk not in Run.objects.values_list("host", flat=True)


def test_running_jobs_keep_the_login_of_the_machine_and_its_resources(
    add_host, project, vision, control_plane
):
    machine = add_host(cpus=2)
    Host.objects.filter(pk=machine.row.pk).update(pinned_key="ssh-ed25519 AAAA")
    before = run_job(project)
    settle(control_plane, machine)
    logins.set_template(machine.row, TEMPLATE, "root", timezone.now())
    Host.objects.filter(machine=machine.row).update(status=HostStatus.UP)
    assert run_job(project).state == JobState.PENDING
    assert run_job(vision).state == JobState.QUEUED, "the two CPUs are held"
    assert user_of(before) == {"gpu"}


def test_a_drain_of_the_machine_moves_the_runs_of_its_logins(split, project, vision, control_plane):
    one, two = split("one", cpus=2), split("two", cpus=2)
    hosts = [*one.values(), *two.values()]
    job = run_job(vision)
    settle(control_plane, *hosts)
    run = Run.objects.select_related("host").get(job=job)
    here, there = (one, two) if run.host.name == "one" else (two, one)
    cordon_and_drain.drain(here["machine"].row, "new disk", None, False, "root", timezone.now())
    scheduler.schedule_quietly(timezone.now())
    settle(control_plane, *hosts)
    scheduler.schedule_quietly(timezone.now())
    settle(control_plane, *hosts)
    latest = Run.objects.select_related("host").filter(job=job).latest("number")
    assert latest.host == there["train-vision"].row
    assert HostMaintenance.objects.get(host=here["machine"].row).drained_at is not None
    cordon_and_drain.uncordon(here["machine"].row, "root", timezone.now())
    assert not HostMaintenance.objects.filter(cordoned=True).exists()


def test_a_machine_is_not_drained_while_a_login_has_runs_and_a_second_drain_by_force_ends_them(
    split, vision, control_plane
):
    found = split(cpus=1)
    hosts, machine = list(found.values()), found["machine"].row
    job = run_job(vision)
    settle(control_plane, *hosts)
    cordon_and_drain.drain(machine, "new disk", None, False, "root", timezone.now())
    scheduler.schedule_quietly(timezone.now())
    settle(control_plane, *hosts)
    of_machine = HostMaintenance.objects.filter(host=machine)
    assert of_machine.get().drained_at is None, "a login of it has a run"
    assert not HostEvent.objects.filter(host=machine, kind="drained").exists()
    until = timezone.now() + timedelta(minutes=5)
    cordon_and_drain.drain(machine, "new disk", until, True, "root", timezone.now())
    for _ in range(2):
        scheduler.schedule_quietly(until + timedelta(minutes=1))
        settle(control_plane, *hosts)
    job.refresh_from_db()
    assert (job.state, job.attempt) == (JobState.QUEUED, 2)
    scheduler.schedule_quietly(until + timedelta(minutes=1))
    assert of_machine.get().drained_at is not None


def test_a_login_alone_is_not_drained(split):
    found = split()
    with pytest.raises(Refused, match="Do this with the machine itself"):
        cordon_and_drain.cordon(found["train-vision"].row, "", "root", timezone.now())


def test_a_gpu_that_a_login_finds_busy_is_kept_out_of_use_on_the_machine(
    split, vision, project, control_plane
):
    found = split(gpus=1)
    run_job(vision, spec(gpus=1))
    run = Run.objects.get()
    uuid = run.gpu_uuids[0]
    login = found["train-vision"]
    login.reconcile(control_plane)
    busy = {uuid: [{"pid": 7, "ticks": 8, "user": "eve", "age_s": 5, "name": "miner", "how": "compute"}]}
    refused = login.runs[run.pk]
    refused.phase = "closed"
    refused.exit = {"why": "refused", "refusal": "gpu_busy", "busy": busy, "message": "busy"}
    arrival = Arrival(run.pk, refused.fact("boot-1"))
    intake.take(login.row.pk, 7, [arrival], timezone.now(), UnreadableFrames())
    assert Gpu.objects.get(uuid=uuid).state == GpuState.QUARANTINED


def test_new_projects_and_bindings_get_their_logins_at_the_next_look(split, vision):
    found = split()
    speech = Project.objects.create(name="speech", created_at=timezone.now())
    logins.make_all_missing(timezone.now())
    users = Host.objects.filter(machine=found["machine"].row).order_by("user")
    assert list(users.values_list("user", flat=True)) == ["train-default", "train-speech", "train-vision"]
    location_bindings.bind("default", ["vision"], "root", timezone.now())
    other = Project.objects.create(name="other", created_at=timezone.now())
    logins.make_all_missing(timezone.now())
    assert not other.logins.exists() and speech.logins.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("removed", ["machine", "template"])
def test_no_login_is_made_on_a_machine_that_loses_its_template_or_is_removed_at_that_moment(
    removed, split, vision
):
    machine = split()["machine"].row
    Project.objects.create(name="speech", created_at=timezone.now())
    problems = []

    def make():
        try:
            logins.make_all_missing(timezone.now())
        except Exception as problem:
            problems.append(problem)
        finally:
            connection.close()

    maker = threading.Thread(target=make)
    with transaction.atomic():
        if removed == "machine":
            remove_host(machine, "root", timezone.now())
        else:
            logins.set_template(machine, "", "root", timezone.now())
        maker.start()
        maker.join(1)
    maker.join(60)
    assert not maker.is_alive() and problems == []
    assert not Host.objects.filter(machine=machine).exists()


def test_a_login_is_never_given_to_another_project(split, vision):
    found = split()
    machine = found["machine"].row
    remove_host(found["train-vision"].row, "root", timezone.now())
    Project.objects.filter(pk=vision.pk).update(name="sight", archived_at=timezone.now())
    newcomer = Project.objects.create(name="vision", created_at=timezone.now())
    logins.make_all_missing(timezone.now())
    assert not newcomer.logins.exists()
    refused = HostEvent.objects.get(host=machine, kind="login_refused")
    assert refused.text == "Project vision gets no login here: train-vision has served another project."


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("train", "has {project} or {id} in it once"),
        ("{project}-{id}", "has {project} or {id} in it once"),
        ("train {project}", "does not make login names"),
        ("a-very-long-login-name-for-{project}", "cannot be the name of a login"),
    ],
)
def test_a_template_that_makes_no_login_names_is_refused(add_host, vision, template, words):
    machine = add_host()
    with pytest.raises(Refused, match=words) as refused:
        logins.set_template(machine.row, template, "root", timezone.now())
    assert refused.value.field == "template"
    assert logins.template_of(machine.row) == ""


def test_one_login_for_all_again_only_when_no_run_holds_another(split, vision, control_plane):
    found = split()
    job = run_job(vision)
    settle(control_plane, *found.values())
    with pytest.raises(Refused, match="1 run holds logins of h1"):
        logins.set_template(found["machine"].row, "", "root", timezone.now())
    services.cancel(Job.objects.get(pk=job.pk), "root", timezone.now())
    settle(control_plane, *found.values())
    Run.objects.update(log_complete_at=timezone.now())
    logins.set_template(found["machine"].row, "", "root", timezone.now())
    assert not Host.objects.filter(machine=found["machine"].row).exists()
    assert user_of(run_job(vision)) == {"gpu"}


def test_a_machine_is_removed_with_its_logins(split, vision, control_plane):
    found = split()
    run_job(vision)
    with pytest.raises(Refused, match="1 run holds it"):
        remove_host(found["machine"].row, "root", timezone.now())
    services.cancel(Job.objects.get(), "root", timezone.now())
    settle(control_plane, *found.values())
    Run.objects.update(log_complete_at=timezone.now())
    remove_host(found["machine"].row, "root", timezone.now())
    assert not Host.objects.exists()


def test_a_machine_is_declared_gone_with_its_logins_and_not_while_one_answers(split, vision, control_plane):
    found = split(gpus=1)
    job = run_job(vision, spec(gpus=1))
    settle(control_plane, *found.values())
    machine = found["machine"].row
    lost = timezone.now() - timedelta(minutes=5)
    Host.objects.filter(pk=machine.pk).update(status=HostStatus.UNREACHABLE, status_since=lost)
    with pytest.raises(Refused, match="its login train-default answers"):
        cordon_and_drain.declare_gone(machine, "h1", "root", timezone.now())
    Host.objects.update(status=HostStatus.UNREACHABLE, status_since=lost)
    cordon_and_drain.declare_gone(machine, "h1", "root", timezone.now())
    run = Run.objects.filter(job=job).earliest("number")
    assert run.declared_lost_at is not None and run.released_at is not None
    assert set(Host.objects.values_list("lease_owner", flat=True)) == {""}
    assert Gpu.objects.get().state == GpuState.CLEANING


def test_a_machine_declared_gone_returns_when_the_runs_of_its_logins_are_proved_over(
    split, vision, control_plane
):
    found = split()
    run_job(vision)
    settle(control_plane, *found.values())
    machine = found["machine"].row
    Host.objects.update(status=HostStatus.UNREACHABLE)
    cordon_and_drain.declare_gone(machine, "h1", "root", timezone.now())
    Host.objects.update(status=HostStatus.UP)
    scheduler.schedule_quietly(timezone.now())
    assert HostMaintenance.objects.get(host=machine).gone_at is not None, "the run may live under its login"
    Run.objects.exclude(declared_lost_at=None).update(proved_at=timezone.now())
    scheduler.schedule_quietly(timezone.now())
    assert HostMaintenance.objects.get(host=machine).gone_at is None


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("act", ["drain", "uncordon", "declare_gone"])
def test_what_is_done_with_a_machine_locks_the_jobs_of_its_logins_in_the_order_of_their_ids(
    act, split, project, vision, control_plane, monkeypatch
):
    """On PostgreSQL another order is a deadlock with whoever locks the same jobs."""
    found = split()
    ids = [run_job(vision).pk, run_job(project).pk]
    first_rows = [found["train-default"].row.pk, found["train-vision"].row.pk]
    assert ids == sorted(ids) and first_rows == sorted(first_rows), (
        "by their rows, the second job comes first"
    )
    machine, now = found["machine"].row, timezone.now()
    acts = {
        "drain": lambda: cordon_and_drain.drain(machine, "", None, False, "root", now),
        "uncordon": lambda: cordon_and_drain.uncordon(machine, "root", now),
        "declare_gone": lambda: cordon_and_drain.declare_gone(machine, "h1", "root", now),
    }
    if act == "uncordon":
        cordon_and_drain.cordon(machine, "", "root", now)
    if act == "declare_gone":
        Host.objects.update(status=HostStatus.UNREACHABLE)
    problems, threads = [], []

    def lock_both():
        try:
            with transaction.atomic():
                snapshot.hold_jobs(ids=ids)
        except Exception as problem:
            problems.append(problem)
        finally:
            connection.close()

    def let_another_lock(locks):
        def go(host_id, *rest):
            jobs = locks(host_id, *rest)
            if jobs and not threads:
                threads.append(threading.Thread(target=lock_both))
                threads[0].start()
                threads[0].join(1)
            return jobs

        return go

    for name in ("mark_jobs_of", "declare_lost"):
        monkeypatch.setattr(lost_hosts, name, let_another_lock(getattr(lost_hosts, name)))
    acts[act]()
    threads[0].join(60)
    assert not threads[0].is_alive() and problems == []


def test_a_lost_login_is_declared_gone_alone_and_frees_what_its_runs_held(
    split, project, vision, control_plane
):
    found = split(gpus=2)
    lost, other = run_job(vision, spec(gpus=1)), run_job(project, spec(gpus=1))
    settle(control_plane, *found.values())
    login = found["train-vision"].row
    run, others = Run.objects.get(job=lost), Run.objects.get(job=other)
    with pytest.raises(Refused, match="has not been lost"):
        cordon_and_drain.declare_gone(login, "h1", "root", timezone.now())
    Host.objects.filter(pk=login.pk).update(status=HostStatus.AUTH_FAILED)
    cordon_and_drain.declare_gone(login, "h1", "root", timezone.now())
    run.refresh_from_db()
    others.refresh_from_db()
    assert run.declared_lost_at is not None and run.released_at is not None
    assert others.declared_lost_at is None and others.released_at is None
    states = dict(Gpu.objects.values_list("uuid", "state"))
    assert states == {run.gpu_uuids[0]: GpuState.CLEANING, others.gpu_uuids[0]: GpuState.OK}
    assert AuditEntry.objects.get(what="host.declare_gone").before["login"] == "train-vision"
    Host.objects.filter(pk=login.pk).update(status=HostStatus.UP)
    assert run_job(vision).state == JobState.QUEUED, "the run that was given up may live under this login"
    Run.objects.filter(pk=run.pk).update(proved_at=timezone.now())
    scheduler.schedule_quietly(timezone.now())
    assert HostMaintenance.objects.get(host=login).gone_at is None
    assert run_job(vision).state == JobState.PENDING
