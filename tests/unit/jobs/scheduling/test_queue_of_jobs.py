"""Many people's jobs in one queue: which is first, which overtakes which, which waits for quota, and the reasons."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from agents.models import Gpu, Host
from jobs import services
from jobs.models import Job, Membership, Project, Role, Run, Tick, Transition
from jobs.projects import quotas
from jobs.projects.quotas import QuotaTarget
from jobs.rules.scheduling.order import LABEL
from jobs.rules.scheduling.policy import BEHIND
from jobs.rules.scheduling.quota import Metric
from jobs.rules.spec.json_fields import InvalidDocument
from jobs.scheduling import queue_snapshot, scheduler
from tests.unit.jobs.conftest import gang, pool_of, spec
from tests.unit.jobs.fake_hosts import settle

KIND = "NVIDIA_L4"


def pass_now():
    scheduler.schedule(timezone.now())


def state_of(job):
    job.refresh_from_db()
    return job.state


def timed(document, seconds, **scheduling):
    document["jobSpec"]["scheduling"] = {"timeout": f"{seconds}s", **scheduling}
    return document


def labelled(document, word):
    return {**document, "labels": {LABEL: word}}


@pytest.fixture
def bob(db):
    """A user with a project of their own."""
    user = User.objects.create_user("bob")
    vision = Project.objects.create(name="vision", created_at=timezone.now(), weight=1)
    Membership.objects.create(project=vision, user=user, role=Role.ADMIN)

    def submit(document, **options):
        return services.submit(
            Project.objects.get(pk=vision.pk), user, document, "default", None, timezone.now(), **options
        )

    return submit


def test_priority_goes_before_age(add_host, submit, bob):
    add_host(gpus=1, cpus=8)
    Project.objects.update(highest_priority="high")
    low = submit(labelled(spec(gpus=1), "low"), place=False)
    normal = submit(spec(gpus=1), place=False)
    high = bob(labelled(spec(gpus=1), "high"), may_prioritize=True)
    pass_now()
    assert [state_of(job) for job in (high, normal, low)] == ["PENDING", "QUEUED", "QUEUED"]
    assert normal.reason.startswith("Needs 1 x 1 NVIDIA_L4") and low.reason == BEHIND.text


@pytest.mark.parametrize(
    ("highest", "said", "priority"),
    [
        ("high", "high", 100),
        ("normal", "high", None),
        ("normal", None, 0),
        ("low", "normal", None),
        ("low", None, -100),
        ("low", "low", -100),
    ],
)
def test_a_project_asks_for_no_more_than_it_may(add_host, bob, highest, said, priority):
    add_host()
    Project.objects.update(highest_priority=highest)
    document = labelled(spec(), said) if said else spec()
    if priority is not None:
        assert bob(document, may_prioritize=True).priority == priority
        return
    with pytest.raises(services.Refused) as refused:
        bob(document, may_prioritize=True)
    assert refused.value.field == f"labels.{LABEL}"
    assert f"have priority {highest} at most" in refused.value.message


def test_high_priority_needs_permission_and_unknown_priorities_are_refused(add_host, bob):
    Project.objects.update(highest_priority="high")
    with pytest.raises(services.Refused) as refused:
        bob(labelled(spec(), "high"))
    assert refused.value.field == f"labels.{LABEL}" and "admins" in refused.value.message
    with pytest.raises(InvalidDocument, match="high, normal or low"):
        bob(labelled(spec(), "urgent"))


def test_projects_take_turns_by_what_they_have_used(add_host, submit, bob):
    """A hundred waiting jobs of one project do not delay the first job of another."""
    add_host(gpus=4, cpus=16)
    mine = [submit(spec(gpus=1), place=False) for _ in range(6)]
    theirs = [bob(spec(gpus=1)) for _ in range(2)]
    pass_now()
    assert [state_of(job) for job in theirs] == ["PENDING"] * 2
    assert [state_of(job) for job in mine] == ["PENDING"] * 2 + ["QUEUED"] * 4


def test_a_job_over_quota_waits_with_the_reason_and_delays_no_other_project(
    add_host, submit, bob, project, control_plane
):
    host = add_host(gpus=4, cpus=16)
    quotas.set_limit(QuotaTarget(project), Metric.GPUS, KIND, 2, "root", timezone.now())
    held, over, cpu = submit(spec(gpus=2)), submit(spec(gpus=1)), submit(spec())
    assert (held.state, over.state, cpu.state) == ("PENDING", "QUEUED", "PENDING")
    assert (
        over.reason == "Waits for quota: project default uses 2 of 2 NVIDIA_L4."
        and not over.earliest_start_at
    )
    other = bob(spec(gpus=2))
    pass_now()
    assert state_of(other) == "PENDING"
    version = over.version
    pass_now()
    over.refresh_from_db()
    assert over.version == version
    settle(control_plane, host)
    host.end(control_plane, Run.objects.get(job=held).pk, exit_code=0)
    assert state_of(over) == "PENDING"


def test_a_short_job_passes_a_reserved_job_and_a_long_one_does_not(add_host, submit):
    add_host("h1", gpus=4, cpus=16), add_host("h2", gpus=4, cpus=16)
    running = submit(timed(spec(gpus=4), 3_600))
    large = submit(gang(pool_of(gpus=4), pool_of(gpus=4)))
    assert large.state == "QUEUED" and "h1 frees by" in large.reason and "1 host has room now" in large.reason
    begins = Run.objects.get(job=running).created_at
    assert timedelta(seconds=3_600) < large.earliest_start_at - begins < timedelta(seconds=3_600 + 900)
    long, short = submit(timed(spec(gpus=1), 90_000)), submit(timed(spec(gpus=1), 600))
    assert (long.state, long.reason, short.state) == ("QUEUED", BEHIND.text, "PENDING")
    version = large.version
    scheduler.schedule(timezone.now() + timedelta(seconds=40))
    large.refresh_from_db()
    assert large.version <= version + 1 and "h1 frees by" in large.reason


def test_gpus_that_are_near_to_each_other_go_to_one_replica(add_host, submit):
    host = add_host(gpus=4, cpus=16)
    links = [[0, 2, 112], [1, 3, 112]]
    Host.objects.filter(pk=host.row.pk).update(facts={"topology": {"links": links, "numa": {}}})
    job = submit(spec(gpus=2))
    indexes = Gpu.objects.filter(uuid__in=Run.objects.get(job=job).gpu_uuids).values_list("index", flat=True)
    assert sorted(indexes) == [0, 2]


def test_a_job_without_a_request_text_gets_one_when_it_is_first_read(add_host, submit):
    job = submit(labelled(spec(gpus=1), "low"), place=False)
    resource_request = Job.objects.get(pk=job.pk).resource_request
    Job.objects.filter(pk=job.pk).update(resource_request="", priority=0)
    add_host(gpus=1)
    pass_now()
    job.refresh_from_db()
    assert (job.state, job.resource_request, job.priority) == ("PENDING", resource_request, -100)


def test_many_waiting_jobs_cost_few_statements(add_host, submit, django_assert_max_num_queries):
    add_host(gpus=1)
    submit(spec(gpus=1))
    waiting = [submit(spec(gpus=1), place=False) for _ in range(60)]
    pass_now()
    with django_assert_max_num_queries(20):
        pass_now()
    assert {state_of(job) for job in waiting} == {"QUEUED"} and len(queue_snapshot.waiting_jobs()) == 60


def test_a_long_queue_is_not_read_all_the_time_and_each_change_is_seen(add_host, submit, monkeypatch):
    monkeypatch.setattr(scheduler, "SHORT_QUEUE", 2)
    add_host(gpus=1)
    for _ in range(4):
        submit(spec(gpus=1), place=False)

    def looks(at):
        before = Tick.objects.get(name="schedule").serial
        scheduler.schedule_unasked(at)
        return Tick.objects.get(name="schedule").serial - before

    pass_now()
    at = Tick.objects.get(name="schedule").at
    assert [looks(at + timedelta(milliseconds=each)) for each in (5, 16)] == [0, 1]
    add_host("h2", gpus=1)
    pass_now()  # a hint
    assert Job.objects.filter(state="PENDING").count() == 2


def test_a_spot_job_makes_room_with_a_grace_and_waits_again_counting_against_nothing(
    add_host, submit, control_plane
):
    host = add_host(gpus=2, cpus=8)
    spot = submit(timed(spec(gpus=2), 3_600, strategy="SPOT"))
    settle(control_plane, host)
    wants = submit(spec(gpus=2))
    assert wants.state == "QUEUED" and "being made free" in wants.reason and wants.earliest_start_at
    run = Run.objects.get(job=spot)
    assert run.stop_wanted_at and run.stop_grace_s == 30 and str(wants.pk) in run.stop_reason
    settle(control_plane, host)
    pass_now()
    assert (state_of(wants), state_of(spot)) == ("RUNNING", "QUEUED")
    assert (spot.attempt, spot.job_retries, spot.preempted_by, spot.error_message) == (2, 0, "", "")
    told = Transition.objects.filter(job=spot, subject="job", to_state="QUEUED").last()
    assert told.kind == "preempt" and f"Makes room for job {wants.pk}" in told.cause
    settle(control_plane, host)
    host.end(control_plane, Run.objects.get(job=wants).pk, exit_code=0)
    assert state_of(spot) == "PENDING"


def test_a_preemption_does_not_name_the_job_of_another_project(add_host, submit, bob, control_plane):
    host = add_host(gpus=1)
    spot = submit(timed(spec(gpus=1), 3_600, strategy="SPOT"))
    settle(control_plane, host)
    secret = bob({**spec(gpus=1), "displayName": "takeover-of-acme"})
    pass_now()
    settle(control_plane, host)
    assert state_of(secret) == "RUNNING"
    told = str(list(Transition.objects.filter(job=spot).values())) + str(
        Run.objects.filter(job=spot).values()
    )
    assert "Makes room for a job of another project" in told
    assert not [word for word in ("takeover", "bob", str(secret.pk)) if word in told]


def test_no_job_is_stopped_for_a_spot_job_or_in_vain(add_host, submit, control_plane):
    host = add_host(gpus=2, cpus=8)
    spot, firm = (submit(timed(spec(gpus=1), 3_600, strategy=word)) for word in ("SPOT", "STANDARD"))
    settle(control_plane, host)
    submit(timed(spec(gpus=1), 3_600, strategy="SPOT")), submit(spec(gpus=2))
    assert (state_of(spot), state_of(firm)) == ("RUNNING", "RUNNING")
    assert not Run.objects.exclude(stop_wanted_at=None).exists()
