"""Limits, the use that counts against them, and the audit of their changes."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.utils import DatabaseError
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agents.infra.clock import Clock
from agents.models import Host, HostStatus
from jobs import services
from jobs.lifecycle.advance import advance
from jobs.models import AuditEntry, DefaultQuota, Job, Project, Run
from jobs.projects import quotas
from jobs.projects.quotas import QuotaTarget
from jobs.rules.scheduling.policy import BEHIND, KEPT
from jobs.rules.scheduling.quota import Metric
from jobs.scheduling.scheduler import schedule
from tests.unit.jobs.conftest import pool_of, spec
from tests.unit.jobs.fake_hosts import settle

pytestmark = pytest.mark.django_db
L4 = "NVIDIA_L4"


@pytest.fixture
def limit(project):
    def set_limit(metric, value, kind="", **target):
        quotas.set_limit(QuotaTarget(project, **target), metric, kind, value, "root", timezone.now())

    return set_limit


def refusal(job, gpus):
    return quotas.read_ledger(timezone.now()).refusal(job.project_id, job.owner_id, gpus)


def test_the_ledger_counts_claims_until_they_are_released(add_host, submit, control_plane, limit, alice):
    host = add_host(gpus=4)
    limit(Metric.GPUS, 2, L4)
    limit(Metric.RUNNING, 1)
    assert (
        refusal(submit(place=False), {L4: 3})
        == f"project default may use 2 {L4} at once, and this job needs 3: it cannot start before an admin of the "
        "deployment raises the limit"
    )
    Job.objects.all().update(cancel_requested_at=timezone.now())
    job = submit(spec(gpus=2))
    waits = submit(spec(gpus=1), place=False)
    assert refusal(waits, {L4: 1}) == f"project default uses 2 of 2 {L4}"
    assert refusal(waits, {}) == "project default runs 1 of 1 job"
    limit(Metric.GPUS, 1, L4)  # stops nothing
    settle(control_plane, host)
    job.refresh_from_db()
    assert job.state == "RUNNING" and refusal(waits, {L4: 1}) == f"project default uses 2 of 1 {L4}"
    host.end(control_plane, Run.objects.get(job=job).pk, exit_code=0)
    waits.refresh_from_db()  # the released quota is used by this job now
    assert waits.state == "PENDING" and refusal(waits, {L4: 1}) == f"project default uses 1 of 1 {L4}"


def test_over_quota_a_job_waits_and_starts_when_there_is_room_again(add_host, submit, control_plane, limit):
    """S0-04; and S0-36: missing capacity has another message."""
    host = add_host(gpus=2)
    limit(Metric.GPUS, 1, L4)
    first, second = submit(spec(gpus=1)), submit(spec(gpus=1))
    assert (first.state, second.state) == ("PENDING", "QUEUED")
    assert second.reason == f"Waits for quota: project default uses 1 of 1 {L4}."
    assert submit(spec()).state == "PENDING"  # a job that needs none of the quota does not wait
    settle(control_plane, host)
    host.end(control_plane, Run.objects.get(job=first).pk, exit_code=0)
    second.refresh_from_db()
    assert second.state == "PENDING"
    limit(Metric.GPUS, 4, L4)
    third = submit(spec(gpus=2))
    assert third.state == "QUEUED" and third.reason and "quota" not in third.reason
    assert not Job.objects.filter(state="FAILED").exists()


def test_what_quota_can_never_allow_is_refused_at_submit(add_host, submit, limit, alice):
    """By the field of the pool that asks for the most. What only has to wait for others is not refused."""
    add_host("h1", gpus=8), add_host("h2", gpus=8), add_host("h3", gpus=8)
    limit(Metric.GPUS, 16, L4)
    two = {
        "displayName": "two pools",
        "jobSpec": {"workerPoolSpecs": [pool_of(gpus=8), pool_of(gpus=8, count=2)]},
    }
    with pytest.raises(services.Refused) as refused:
        submit(two)
    assert refused.value.field == "job_spec.worker_pool_specs[1].machine_spec.accelerator_count"
    assert f"The quota of {L4} at once is 16 for project default, and this job asks for 24" in str(
        refused.value
    )
    assert not Job.objects.exists()
    assert submit(spec(gpus=8)).state == submit(spec(gpus=8)).state == "PENDING"
    assert submit(spec(gpus=1)).reason.startswith("Waits for quota")
    limit(Metric.GPUS, 4, L4, each=True)
    with pytest.raises(services.Refused, match="is 4 for alice in project default"):
        submit(spec(gpus=8))
    limit(Metric.GPUS, 8, L4, user=alice)
    assert submit(spec(gpus=8), place=False).state == "QUEUED"


def test_a_limit_that_is_lowered_later_is_the_reason_why_a_job_waits(add_host, submit, limit):
    """A waiting job is not failed for it, and starts when the limit is raised again."""
    add_host("h1", gpus=8)
    job = submit(spec(gpus=8), place=False)
    limit(Metric.GPUS, 4, L4)
    schedule(timezone.now())
    job.refresh_from_db()
    assert job.state == "QUEUED" and job.reason == (
        f"Waits for quota: project default may use 4 {L4} at once, and this job needs 8: it cannot start before an "
        "admin of the deployment raises the limit."
    )
    limit(Metric.GPUS, 8, L4)
    schedule(timezone.now())
    job.refresh_from_db()
    assert job.state == "PENDING"


def test_the_project_that_used_less_for_its_weight_is_served_first(
    add_host, submit, control_plane, project, alice
):
    """A job submitted later is placed earlier, because the other project has used much lately."""
    host = add_host(gpus=1)
    other = Project.objects.create(name="other", created_at=timezone.now(), weight=1.0)
    Project.objects.filter(pk=project.pk).update(share_used=1e6, share_at=timezone.now())
    running = submit(spec(gpus=1))
    used_much = submit(spec(gpus=1), place=False)
    used_nothing = services.submit(other, alice, spec(gpus=1), "default", None, timezone.now())
    settle(control_plane, host)
    host.end(control_plane, Run.objects.get(job=running).pk, exit_code=0)
    states = dict(Job.objects.values_list("pk", "state"))
    assert (states[used_much.pk], states[used_nothing.pk]) == ("QUEUED", "PENDING")


def test_members_have_limits_of_their_own(add_host, submit, limit, alice):
    add_host(gpus=4)
    limit(Metric.GPUS, 2, L4, each=True)
    submit(spec(gpus=2))
    waits = submit(spec(gpus=1), place=False)
    assert refusal(waits, {L4: 1}) == f"alice in project default uses 2 of 2 {L4}"
    limit(Metric.GPUS, 3, L4, user=alice)
    assert refusal(waits, {L4: 1}) is None
    limit(Metric.GPUS, None, L4, user=alice)
    limit(Metric.GPUS, None, L4, each=True)
    assert refusal(waits, {L4: 100}) is None


def test_gpu_hours_of_this_month_count_what_runs_and_what_ran(add_host, submit, control_plane, limit):
    host = add_host(gpus=4)
    limit(Metric.GPU_HOURS, 3)
    now = timezone.now()
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    over, running = submit(spec(gpus=1)), submit(spec(gpus=2))
    settle(control_plane, host)
    host.end(control_plane, Run.objects.get(job=over).pk, exit_code=0)
    hour = timedelta(hours=1)
    later = month + 20 * hour
    over.usage.update(began_at=month - hour, ended_at=month + hour)  # one hour of it counts for this month
    Run.objects.filter(job=running).update(created_at=later - hour)
    book = quotas.read_ledger(later)
    assert book.projects[over.project_id].use.gpu_hours == pytest.approx(3)
    assert book.refusal(over.project_id, None, {L4: 1}).endswith(
        "has used 3.0 of the 3 GPU-hours of this month"
    )
    assert book.refusal(over.project_id, None, {}) is None


def test_a_full_queue_refuses_and_says_for_whom(submit, limit, alice):
    limit(Metric.QUEUED, 2)
    limit(Metric.QUEUED, 1, user=alice)
    first = submit(request_id="once", place=False)
    with pytest.raises(services.Exhausted) as refused:
        submit(place=False)
    assert refused.value.field == "project" and "alice in project default, which may have 1" in str(
        refused.value
    )
    assert submit(request_id="once", place=False) == first  # the same request is the same job
    limit(Metric.QUEUED, 5, user=alice)
    submit(place=False)
    with pytest.raises(services.Exhausted, match="2 jobs wait already for project default"):
        submit(place=False)


def test_without_limits_no_usage_is_read(submit, django_assert_num_queries):
    submit(place=False)
    with django_assert_num_queries(1):
        quotas.read_ledger(timezone.now())


def test_the_ledger_takes_the_same_number_of_queries_for_many_jobs(
    submit, limit, django_assert_max_num_queries
):
    limit(Metric.GPUS, 2, L4, each=True)
    limit(Metric.GPU_HOURS, 3)
    for _ in range(30):
        submit(place=False)
    with django_assert_max_num_queries(8):
        quotas.read_ledger(timezone.now())


@pytest.mark.parametrize(
    ("metric", "kind", "value", "field"),
    [
        (Metric.GPUS, "", 1, "accelerator_type"),
        (Metric.GPUS, "h100; drop", 1, "accelerator_type"),
        (Metric.RUNNING, L4, 1, "accelerator_type"),
        (Metric.GPUS, L4, -1, "limit"),
        (Metric.GPUS, L4, 1.5, "limit"),
        (Metric.QUEUED, "", float("nan"), "limit"),
        (Metric.GPU_HOURS, "", float("inf"), "limit"),
    ],
)
def test_a_limit_that_cannot_be_is_refused_by_its_field(limit, metric, kind, value, field):
    with pytest.raises(services.Refused) as refused:
        limit(metric, value, kind)
    assert refused.value.field == field and not AuditEntry.objects.exists()


def test_every_change_of_a_limit_is_audited_with_actor_before_and_after(limit, project, alice):
    limit(Metric.GPUS, 4, L4)
    limit(Metric.GPUS, 4, L4)  # no change, so no audit row
    limit(Metric.GPUS, 2, L4)
    limit(Metric.GPUS, None, L4)
    limit(Metric.RUNNING, 1, user=alice)
    rows = AuditEntry.objects.order_by("id").values_list("actor", "what", "subject", "before", "after")
    of_project = ("root", "quota.set", f"project default: {L4}")
    assert list(rows) == [
        (*of_project, None, 4),
        (*of_project, 4, 2),
        (*of_project, 2, None),
        ("root", "quota.set", "alice in project default: running jobs", None, 1),
    ]
    for act in (
        lambda: AuditEntry.objects.update(after=99),
        lambda: AuditEntry.objects.all()._raw_delete(using="default"),
    ):
        with pytest.raises(DatabaseError), transaction.atomic():
            act()
    assert AuditEntry.objects.filter(project=project).count() == 4


def test_new_projects_begin_with_the_default(project):
    new = QuotaTarget(None)
    quotas.set_limit(new, Metric.GPUS, L4, 8, "root", timezone.now())
    quotas.set_limit(QuotaTarget(None, each=True), Metric.QUEUED, "", 5, "root", timezone.now())
    quotas.set_limit(new, Metric.GPU_HOURS, "", 5, "root", timezone.now())
    quotas.set_limit(new, Metric.GPU_HOURS, "", None, "root", timezone.now())
    vision = Project.objects.create(name="vision", created_at=timezone.now())
    quotas.give_defaults(vision)
    assert quotas.limits_of(QuotaTarget(vision)).gpus == {L4: 8}
    assert quotas.limits_of(QuotaTarget(vision, each=True)).queued == 5
    assert quotas.limits_of(QuotaTarget(vision)).gpu_hours is None and DefaultQuota.objects.count() == 2
    assert quotas.limits_of(QuotaTarget(project)) == quotas.NO_LIMITS
    assert User.objects.count() == 0


def test_claims_of_ended_jobs_on_unreachable_hosts_do_not_count_against_quota(add_host, submit, limit):
    """Not even the job itself, which will start elsewhere, pays for such claims."""
    add_host(gpus=2)
    limit(Metric.GPUS, 2, L4)
    job = submit(spec(gpus=2))
    assert refusal(job, {L4: 2})
    for later in ({"attempt": 2, "state": "QUEUED"}, {"attempt": 1, "state": "CANCELLED"}):
        Job.every.filter(pk=job.pk).update(**later)
        assert refusal(job, {L4: 2}) is None


def test_the_time_that_a_job_may_wait_for_capacity_stands_still_while_it_waits_for_quota(
    add_host, submit, control_plane, limit, project, alice
):
    """S0-04 and S0-36: over quota is never a stockout."""
    host = add_host(gpus=1)
    limit(Metric.GPUS, 1, L4)
    submit(spec(gpus=1))
    settle(control_plane, host)
    patient = spec(gpus=1)
    patient["jobSpec"]["scheduling"] = {"strategy": "FLEX_START", "maxWaitDuration": "100s"}
    job = submit(patient)
    other = Project.objects.create(name="other", created_at=timezone.now(), weight=100)
    services.submit(other, alice, spec(gpus=1), "default", None, timezone.now())
    began = job.queued_at

    def look(seconds):
        at = began + timedelta(seconds=seconds)
        schedule(at)
        advance([job.pk], Clock(at))
        job.refresh_from_db()
        return job.job_retries, job.due_at and round((job.due_at - began).total_seconds())

    assert look(1_000) == (0, None) and job.reason.startswith("Waits for quota")
    limit(Metric.GPUS, 2, L4)
    # The time counts from the first moment with quota, 1,000 s after the job was submitted.
    assert look(1_000) == (0, 1_100) and job.reason == BEHIND.text
    limit(Metric.GPUS, 1, L4)
    assert look(1_060) == (0, None)
    limit(Metric.GPUS, 2, L4)
    assert look(1_560) == (0, 1_600)
    assert look(1_599)[0] == 0 and look(1_601)[0] == 1
    assert (job.quota_s, job.quota_since) == (0.0, None)


def test_the_time_stands_still_also_while_no_host_is_up(add_host, submit, control_plane, limit):
    host = add_host(gpus=1)
    limit(Metric.RUNNING, 0)
    patient = spec(gpus=1)
    patient["jobSpec"]["scheduling"] = {"maxWaitDuration": "100s"}
    job = submit(patient)
    schedule(timezone.now())
    job.refresh_from_db()
    assert job.quota_since is not None
    Host.objects.filter(pk=host.row.pk).update(status=HostStatus.UNREACHABLE)
    schedule(timezone.now())
    before = job.quota_since
    job.refresh_from_db()
    assert (job.quota_since, job.quota_s) == (before, 0.0)


def test_the_quota_clocks_of_many_jobs_go_on_by_one_statement(add_host, submit, limit):
    add_host(gpus=1)
    limit(Metric.RUNNING, 0)
    patient = spec(gpus=1)
    patient["jobSpec"]["scheduling"] = {"maxWaitDuration": "900s"}
    jobs = [submit(patient) for _ in range(4)]
    now = timezone.now()
    for number, job in enumerate(jobs):
        Job.objects.filter(pk=job.pk).update(
            quota_since=now - timedelta(seconds=number), quota_s=100 * number
        )
    limit(Metric.RUNNING, 4)
    with CaptureQueriesContext(connection) as asked:
        schedule(now)
    writes = [each["sql"] for each in asked if "UPDATE" in each["sql"] and '"quota_s" =' in each["sql"]]
    assert len(writes) == 1
    waited = Job.objects.filter(state="QUEUED").order_by("pk").values_list("quota_since", "quota_s")
    assert list(waited) == [(None, pytest.approx(101.0 * number, abs=0.9)) for number in (1, 2, 3)]


def test_a_large_job_over_quota_is_not_passed_by_small_ones_that_would_stay(
    add_host, submit, control_plane, limit
):
    host = add_host(gpus=4, cpus=16)
    limit(Metric.GPUS, 2, L4)
    first = submit(spec(gpus=1))
    settle(control_plane, host)
    large, small = submit(spec(gpus=2)), submit(spec(gpus=1))
    assert large.reason == f"Waits for quota: project default uses 1 of 2 {L4}, and this job needs 2."
    assert (small.state, small.reason) == ("QUEUED", KEPT.text)
    short = spec(gpus=1)
    short["jobSpec"]["scheduling"] = {"timeout": "60s"}
    assert submit(short).state == "PENDING"
    settle(control_plane, host)
    for job in (first, Job.objects.latest("pk")):
        host.end(control_plane, Run.objects.get(job=job).pk, exit_code=0)
    large.refresh_from_db()
    assert large.state == "PENDING"


def test_placed_jobs_are_counted_from_the_index_and_past_ones_are_not_read(project):
    """SQLite chose an index by which it read all jobs: 400 ms at 100,000 of them, in each pass."""
    other = Project.objects.create(name="other", created_at=timezone.now())
    for projects in ([project.pk], [project.pk, other.pk]):
        with CaptureQueriesContext(connection) as asked:
            quotas.use_by_project(projects)
        [counted] = [query["sql"] for query in asked if "gpuclaim" not in query["sql"]]
        assert "GROUP BY" in counted
        if connection.vendor == "sqlite":
            with connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN QUERY PLAN {counted}")
                plan = " ".join(str(row[3]) for row in cursor.fetchall())
            assert "job_totals" in plan and "GROUP BY" not in plan, plan


def test_a_project_is_counted_alone_as_beside_others(add_host, submit, project, alice):
    """One project is asked for in another way than several."""
    add_host(gpus=4)
    other = Project.objects.create(name="other", created_at=timezone.now())
    for gpus, where in ((1, project), (2, other)):
        Job.objects.filter(pk=submit(spec(gpus=gpus)).pk).update(project=where)
    apart = {each.pk: quotas.use_by_project([each.pk])[each.pk] for each in (project, other)}
    assert apart == quotas.use_by_project([project.pk, other.pk])
    assert [(one.gpus, one.running) for one in apart.values()] == [({L4: 1}, 1), ({L4: 2}, 1)]
    Job.objects.filter(project=other).update(state="QUEUED")
    Job.objects.filter(project=project).update(state="FAILED", ended_at=timezone.now())
    assert quotas.use_by_project([other.pk])[other.pk].gpus == {L4: 2}
    assert quotas.use_by_project([project.pk]).get(project.pk) is None
