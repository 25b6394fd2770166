"""The map of all GPUs: what each does, for which job, and no job's name for people who may not see that job."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agents.hosts import gpu_quarantine
from agents.infra import shared_answers
from agents.models import Host
from console.presenters.hosts import gpu_map, host_gpus
from console.presenters.hosts.gpu_last_day import last_day
from console.presenters.hosts.host_list import stamp
from jobs.host_sync import gpu_hours
from jobs.host_sync.samples import start_of_step
from jobs.models import GpuClaim, GpuHour, HostMaintenance, Job, Proof, Run, RunSample, Stray, Usage
from tests.unit.console.views.example_rows import a_host, a_job, a_run, one_line

STRANGER = {
    "pid": 4711,
    "ticks": 9,
    "user": "mallory",
    "age_s": 7200,
    "name": "miner",
    "how": "open",
    "run": "",
}


@pytest.fixture
def cluster(project, cast):
    """GPUs that are held, cleaned, used by another process, and free; and a free one on a cordoned host."""
    host = a_host(name="gpu-a", gpus=4)
    HostMaintenance.objects.create(host=a_host(name="gpu-b", gpus=1), cordoned=True)
    held, ended, his, _ = host.gpus.order_by("index")
    job = a_job(project, cast.bob, name="secret-project-x", replicas=2)
    first, second = job.replicas.order_by("pool")
    a_run(job, first, host, gpus=[held], gpu_uuids=[held.uuid])
    a_run(job, second, host, gpus=[ended], phase="ended", gpu_uuids=[ended.uuid])
    gpu_quarantine.quarantine(host.pk, {his.uuid: [STRANGER]}, "", timezone.now())
    return host


def test_the_map_shows_the_state_of_each_gpu_and_the_job_that_holds_it(browser, cluster):
    page = browser("vera").get("/hosts/gpus")
    rows = {row.name: row for row in page.context["map"].hosts}
    states = [cell.state.value for cell in rows["gpu-a"].cells]
    assert states == ["held", "cleaning", "strangers", "free"]
    assert [cell.state.value for cell in rows["gpu-b"].cells] == ["closed"]
    [holder] = rows["gpu-a"].holders
    assert (holder.job, holder.project, holder.gpus) == ("secret-project-x", "default", 2)
    text = page.content.decode()
    assert "held by a job, secret-project-x (workerpool0-0) of default" in text
    assert "mallory" not in text and "miner" not in text and "4711" not in text
    assert "5 GPUs" in text and "1 held by somebody else" in text
    HostMaintenance.objects.update(cordoned=False)
    only = browser("vera").get("/hosts/gpus?type=NVIDIA_L4").context["map"]
    assert only.total == 5 and only.hosts[1].cells[0].state.value == "free"


def test_a_run_of_a_login_is_shown_on_its_machine(browser, cluster):
    """With a login for each project, the host of a run is the row of that login."""
    root = User.objects.get(username="root")
    before = stamp(root, {})
    Run.objects.update(host=a_host(name="gpu-a-default", machine=cluster))
    rows = {row.name: row for row in browser("bob").get("/hosts/gpus").context["map"].hosts}
    [holder] = rows["gpu-a"].holders
    assert (holder.job, holder.gpus) == ("secret-project-x", 2) and "gpu-a-default" not in rows
    assert rows["gpu-a"].cells[0].url == holder.url != ""
    assert one_line(browser("charlie").get("/hosts/gpus").text).count("secret-project-x") == 0
    assert stamp(root, {})[3] == before[3] and before[3]["pk__count"] == 2


def test_a_gpu_that_a_stray_run_holds_is_not_shown_as_free(browser, cluster):
    free = cluster.gpus.get(index=3)
    row = Stray.objects.create(
        host=cluster, run="17-x", phase="running", found_at=timezone.now(), gpu_uuids=[free.uuid]
    )

    def states():
        rows = browser("root").get("/hosts/gpus").context["map"].hosts
        return [cell.state.value for cell in rows[0].cells]

    assert states() == ["held", "cleaning", "strangers", "forgotten"]
    page = browser("root").get(f"/hosts/{cluster.pk}/").content.decode()
    assert "Held by a run that a restored backup has forgotten" in page
    Stray.objects.filter(pk=row.pk).update(proof=Proof.UNSEALED)  # anybody there could have written that
    assert states()[3] == "free"


@pytest.mark.parametrize(("who", "seen"), [("root", True), ("vera", True), ("charlie", False)])
def test_job_names_are_shown_only_to_people_who_may_see_the_job(browser, cluster, who, seen):
    text = one_line(browser(who).get("/hosts/gpus").text)
    assert ("secret-project-x" in text) == seen
    assert ('2 × <span class="muted">a job of a project that is not yours' in text) != seen
    assert str(Job.objects.get().pk) in text or not seen
    assert seen or str(Job.objects.get().pk) not in text


def test_the_number_of_queries_does_not_grow_with_the_hosts(
    browser, cluster, project, cast, django_assert_max_num_queries
):
    session = browser("vera")
    session.get("/hosts/gpus")
    for _ in range(5):
        host = a_host(gpus=3)
        job = a_job(project, cast.bob)
        a_run(job, job.replicas.get(), host, gpus=list(host.gpus.all()))
    with django_assert_max_num_queries(22):
        assert session.get("/hosts/gpus").context["map"].total == 20


@pytest.mark.parametrize("by_login", [False, True])
def test_the_last_day_counts_held_gpus_and_their_utilization(cluster, project, cast, by_login):
    """Two of five GPUs were held: one for three hours until now, 80 % busy; one for an hour, two hours ago."""
    now = start_of_step(timezone.now(), 3600) + timedelta(minutes=55)
    run = Run.objects.get(phase="running")
    Run.objects.filter(pk=run.pk).update(created_at=start_of_step(now, 3600) - timedelta(hours=2))
    other = Run.objects.get(phase="ended")
    GpuClaim.objects.filter(run=other).update(released_at=now)
    begun = start_of_step(now, 3600) - timedelta(hours=1)
    Usage.objects.create(
        run=other,
        job=other.job,
        project=project,
        owner_name="bob",
        accelerator_type="NVIDIA_L4",
        gpus=1,
        cpus=1,
        began_at=begun,
        ended_at=begun + timedelta(minutes=30),
    )
    for minute in range(0, 60, 10):
        for hours, step in ((1, 60), (0, 10)):
            at = start_of_step(now, 3600) - timedelta(hours=hours) + timedelta(minutes=minute)
            RunSample.objects.create(
                run=run, step=step, at=at, cpu=1.0, gpus=[[80 if minute != 30 else 20, 10]]
            )
    if by_login:
        Run.objects.update(host=a_host(machine=cluster))
    hosts = list(Host.machines.values_list("pk", flat=True))

    def shown(hosts=hosts, kind="NVIDIA_L4"):
        return [(hour.held, hour.busy) for hour in last_day(hosts, kind, 5, now).hours]

    expected = [(0, None), (20, None), (30, 12), (20, 12)]
    assert shown()[-4:] == shown(kind="")[-4:] == expected and len(shown()) == 24
    assert shown(kind="NVIDIA_T4") == shown(hosts=[0]) == [(0, None)] * 24
    assert last_day(hosts, "", 0, now) is None
    # Once the hours are over, the page reads their sums, which need no samples any more.
    gpu_hours.sum_hours(now)
    RunSample.objects.filter(at__lt=start_of_step(now, 3600)).delete()
    shared_answers.forget_all()
    with CaptureQueriesContext(connection) as queries:
        assert shown()[-4:] == expected
    assert (
        GpuHour.objects.exclude(host__in=hosts).count() == 0
        and len(shown(kind="NVIDIA_T4")) == 24
        and GpuHour.objects.filter(accelerator_type="NVIDIA_L4").exists()
    )
    asked = [query["sql"] for query in queries if "runsample" in query["sql"]]
    assert len(asked) <= 24 - len(gpu_hours.summed(gpu_hours.last_hours(now)))


def test_an_hour_is_summed_once_and_the_sums_are_forgotten_after_two_days(cluster):
    now = start_of_step(timezone.now(), 3600) + timedelta(minutes=2)
    Run.objects.update(created_at=now - timedelta(hours=1))
    gpu_hours.sum_hours(now)
    assert not GpuHour.objects.exists(), "reports of the hour that is just over may still come"
    gpu_hours.sum_hours(now + timedelta(minutes=2))
    [row] = GpuHour.objects.all()
    assert row.held_s == 2 * 58 * 60 and row.busy is None
    Run.objects.update(created_at=now - timedelta(minutes=30))
    gpu_hours.sum_hours(now + timedelta(minutes=4))
    assert GpuHour.objects.get().held_s == row.held_s
    gpu_hours.sum_hours(now + timedelta(hours=50))
    assert not GpuHour.objects.filter(pk=row.pk).exists()


def test_the_map_has_pages_of_hosts_and_its_tally_counts_all(browser, cluster, monkeypatch):
    for number in range(3):
        a_host(name=f"gpu-{'cde'[number]}", gpus=2)
    monkeypatch.setattr(gpu_map, "SIZE", 2)
    vera = browser("vera")
    first = vera.get("/hosts/gpus?type=NVIDIA_L4")
    assert [row.name for row in first.context["map"].hosts] == ["gpu-a", "gpu-b"]
    assert (
        first.context["map"].next
        == "/hosts/gpus?type=NVIDIA_L4&after=gpu-b"
        in first.text.replace("&amp;", "&")
    )
    second = vera.get(first.context["map"].next).context["map"]
    last = vera.get(second.next).context["map"]
    assert [row.name for row in (*second.hosts, *last.hosts)] == ["gpu-c", "gpu-d", "gpu-e"] and not last.next
    for shown in (first.context["map"], second, last):
        assert shown.total == 11
        assert {state.value: count for state, count in shown.tally} == {
            "held": 1,
            "cleaning": 1,
            "strangers": 1,
            "free": 7,
            "closed": 1,
        }


def test_the_runs_of_a_host_are_found_by_its_own_index(cluster):
    """With a condition on the host's row as well, PostgreSQL reads every run that holds something."""
    host = Host.objects.get(name="gpu-a")
    login = a_host(name="gpu-a.login", gpus=0)
    Host.objects.filter(pk=login.pk).update(machine=host)
    elsewhere = a_host(name="gpu-c", gpus=0)
    here = Run.objects.filter(host_gpus.on_machine(host)).order_by()
    assert here.exists() and "JOIN" not in str(here.query).upper()
    moved = here.values_list("pk", flat=True)[0]
    Run.objects.filter(pk=moved).update(host=login)
    assert moved in here.values_list("pk", flat=True)
    Run.objects.filter(pk=moved).update(host=elsewhere)
    assert moved not in here.values_list("pk", flat=True)
