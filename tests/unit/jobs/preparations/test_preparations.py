"""What hosts must have before runs start: asked for once a host, the whole gang is held back, a failure is told."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta

import pytest
from django.utils import timezone

from agents.infra.clock import Clock
from agents.models import Host, HostStatus
from jobs import services
from jobs.host_sync import prepared
from jobs.lifecycle.advance import advance_quietly
from jobs.models import Job, Preparation, Run, Transition
from jobs.preparations import kinds
from jobs.preparations.need import Need
from jobs.preparations.progress import progress_of
from tests.unit.jobs.conftest import gang, pool_of
from tests.unit.jobs.fake_hosts import settle

pytestmark = pytest.mark.django_db


class Tree:
    """A kind for these tests: runs on hosts named in `hosts` need it."""

    name = "tree"

    def __init__(self, hosts=("h1", "h2"), key="abc"):
        self.hosts, self.key = hosts, key

    def needs(self, run, spec, pool):
        if run.host.name in self.hosts:
            yield Need(self.name, self.key, {"from": "here"}, f"the tree {self.key}")

    def secrets(self, preparation):
        return {"token": "hidden"}


@pytest.fixture
def tree(monkeypatch):
    tree = Tree()
    monkeypatch.setattr(kinds, "KINDS", {"tree": tree})
    monkeypatch.setattr(prepared, "KINDS", {"tree": tree})
    return tree


@pytest.fixture
def hosts(add_host):
    return add_host("h1", cpus=4), add_host("h2", cpus=4)


@pytest.fixture
def job(tree, hosts, submit):
    return submit(gang(pool_of(machine="n1-standard-4"), pool_of(machine="n1-standard-4")))


def reasons(job):
    job.refresh_from_db()
    return job.reason


def test_a_gang_starts_only_when_all_its_hosts_are_ready(job, hosts, control_plane):
    first, second = hosts
    settle(control_plane, *hosts)
    assert not first.started_runs and not second.started_runs
    (name,) = first.asked
    assert first.asked[name] == second.asked[name] == {"from": "here", "token": "hidden"}
    first.prepare(control_plane, name)
    settle(control_plane, *hosts)
    assert not first.started_runs and not second.started_runs, "the other host is not ready"
    assert Run.objects.filter(preparing=True).count() == 2
    second.prepare(control_plane, name)
    settle(control_plane, *hosts)
    assert len(first.started_runs) == len(second.started_runs) == 1
    assert reasons(job) == ""
    began, done = Transition.objects.filter(job=job, kind="preparation").order_by("pk")
    assert (began.cause, began.to_state) == ("2 hosts prepare the tree abc.", "preparing")
    assert re.fullmatch(r"The hosts have all that the job needs, after \d+ s\.", done.cause)
    assert began.attempt == done.attempt == job.attempt


def test_the_secret_of_a_preparation_is_not_stored(job):
    assert [row.what for row in Preparation.objects.all()] == [{"from": "here"}] * 2


def test_the_secret_of_a_preparation_is_masked_in_what_its_program_prints(job, hosts, control_plane):
    settle(control_plane, *hosts)
    (name,) = hosts[0].asked
    hosts[0].prepare(control_plane, name, "WORKING", message="with hidden", tail="the hidden\nend")
    row = Preparation.objects.get(host=hosts[0].row)
    assert (row.message, row.tail) == ("with ******", "the ******\nend")


def test_the_reason_says_how_far_the_hosts_are(job, hosts, control_plane):
    assert reasons(job) == "h1 prepares the tree abc, h2 prepares the tree abc"
    settle(control_plane, *hosts)
    (name,) = hosts[0].asked
    hosts[0].prepare(control_plane, name, "WORKING", done=25, total=100, unit="bytes")
    assert reasons(job) == "h1 prepares the tree abc (25 %), h2 prepares the tree abc"
    row = Preparation.objects.get(host=hosts[0].row)
    later = progress_of(row, row.began_at + timedelta(seconds=10))
    assert (later.share, later.left_s) == (0.25, 30.0)


def test_what_a_host_has_is_not_asked_for_again(job, hosts, submit, control_plane):
    settle(control_plane, *hosts)
    (name,) = hosts[0].asked
    for host in hosts:
        host.prepare(control_plane, name)
    settle(control_plane, *hosts)
    for host in hosts:
        for run in list(host.runs):
            host.end(control_plane, run, exit_code=0)
        host.asked.clear()
    settle(control_plane, *hosts)
    again = submit(gang(pool_of(machine="n1-standard-4"), pool_of(machine="n1-standard-4")))
    settle(control_plane, *hosts)
    assert [len(host.started_runs) for host in hosts] == [2, 2] and not hosts[0].asked
    assert not Run.objects.filter(job=again, preparing=True).exists()


def test_a_mistake_of_the_user_fails_the_job_with_the_words_of_the_program(job, hosts, control_plane):
    settle(control_plane, *hosts)
    (name,) = hosts[0].asked
    hosts[0].prepare(control_plane, name, "FAILED", fault="user", message="manifest unknown")
    settle(control_plane, *hosts)
    job.refresh_from_db()
    assert job.state == "FAILED" and not hosts[0].started_runs and not hosts[1].started_runs
    assert "StartError" in job.error_message and "the tree abc: manifest unknown" in job.error_message
    assert not Run.objects.filter(released_at=None).exists(), "no claim is left"


def test_a_fault_of_hosts_is_tried_three_times_in_all(job, hosts, control_plane):
    for attempt in range(3):
        settle(control_plane, *hosts)
        failed = [(host, name) for host in hosts for name in host.asked if name.asked == attempt + 1]
        assert failed, f"attempt {attempt}"
        for host, name in failed:
            host.prepare(control_plane, name, "FAILED", fault="host", message="no space left on device")
        settle(control_plane, *hosts)
        Job.every.update(rests_until=None, queued_at=timezone.now())
        control_plane._decider.submit((), place=True)
    job.refresh_from_db()
    assert job.state == "FAILED", job.reason
    assert job.error_message == "Internal error occurred for the current attempt"
    assert not hosts[0].started_runs and not hosts[1].started_runs
    assert not Run.objects.filter(metrics_proof="").exists(), "nothing is waited for: nothing was started"


def test_a_cancel_while_hosts_prepare_ends_the_job_at_once(job, hosts, control_plane):
    settle(control_plane, *hosts)
    services.cancel(job, "alice", timezone.now())
    settle(control_plane, *hosts)
    job.refresh_from_db()
    assert job.state == "CANCELLED" and not hosts[0].started_runs
    (name,) = hosts[0].asked
    hosts[0].prepare(control_plane, name)
    settle(control_plane, *hosts)
    assert not hosts[0].started_runs, "it came too late"


def test_a_host_ends_what_a_cancelled_job_waited_for_and_begins_anew_when_another_job_asks(
    job, hosts, submit, control_plane
):
    first = hosts[0]
    settle(control_plane, *hosts)
    (name,) = first.asked
    first.prepare(control_plane, name, "WORKING", done=25, total=100)
    settle(control_plane, *hosts)
    assert not first.ended, "the job waits for it"
    services.cancel(job, "alice", timezone.now())
    settle(control_plane, *hosts)
    assert first.ended == [name] and not hosts[1].ended, "the other host has never begun"
    first.prepare(control_plane, name, "WORKING", done=30, total=100)
    first.prepare(control_plane, name, "FAILED", fault="host")
    row = Preparation.objects.get(host=first.row)
    assert (row.phase, row.asked, row.done, row.began_at) == ("WANTED", 2, 0, None), "this came too late"
    submit(gang(pool_of(machine="n1-standard-4"), pool_of(machine="n1-standard-4")))
    settle(control_plane, *hosts)
    assert [each.asked for each in first.asked] == [1, 2]


def test_what_another_job_waits_for_goes_on(job, hosts, submit, control_plane):
    first, second = hosts
    Host.every.update(cpus=8, memory_mb=64_000)
    other = submit(gang(pool_of(machine="n1-standard-4"), pool_of(machine="n1-standard-4")))
    settle(control_plane, *hosts)
    (name,) = first.asked
    first.prepare(control_plane, name, "WORKING", done=25, total=100)
    services.cancel(job, "alice", timezone.now())
    settle(control_plane, *hosts)
    assert not first.ended and Preparation.objects.get(host=first.row).done == 25
    services.cancel(other, "alice", timezone.now())
    settle(control_plane, *hosts)
    assert first.ended == [name]


@pytest.mark.parametrize(
    "goes_back", [{"outcome": "QUEUED", "attempt": 1}, {"outcome": "", "attempt": 2, "state": "QUEUED"}]
)
def test_hosts_go_on_for_a_job_that_goes_back_to_the_queue_until_it_has_other_hosts(
    job, hosts, control_plane, goes_back
):
    first = hosts[0]
    settle(control_plane, *hosts)
    (name,) = first.asked
    first.prepare(control_plane, name, "WORKING")
    Run.objects.update(phase="closed", preparing=False)
    Job.every.update(**goes_back)
    settle(control_plane, *hosts)
    assert not first.ended
    Job.every.update(outcome="", attempt=2, state="PENDING")
    settle(control_plane, *hosts)
    assert first.ended == [name], "it was placed, and none of its runs waits for this"


def test_what_a_host_is_at_is_left_alone_when_nobody_knows_it_or_the_lease_is_lost(job, hosts, control_plane):
    first = hosts[0]
    settle(control_plane, *hosts)
    (name,) = first.asked
    services.cancel(job, "alice", timezone.now())
    settle(control_plane, *hosts)
    give_up = control_plane.give_up_preparations
    assert give_up(first.row.pk, first.row.lease_token, [replace(name, key="of a newer database")]) == []
    assert give_up(first.row.pk, first.row.lease_token + 1, [name]) == []
    assert give_up(first.row.pk, first.row.lease_token, [name]) == [name]


def test_a_process_that_was_killed_is_asked_for_again_and_not_for_ever(job, hosts, control_plane):
    first = hosts[0]
    settle(control_plane, *hosts)
    for asked in range(1, 3):
        (name,) = [name for name in first.asked if name.asked == asked]
        first.prepare(control_plane, name, "LOST")
        settle(control_plane, *hosts)
    assert Preparation.objects.get(host=first.row).phase == "WANTED"
    (name,) = [name for name in first.asked if name.asked == 3]
    first.prepare(control_plane, name, "LOST", message="its process ended early")
    row = Preparation.objects.get(host=first.row)
    assert (row.phase, row.fault) == ("FAILED", "host")


def test_an_old_report_changes_nothing(job, hosts, control_plane):
    first = hosts[0]
    settle(control_plane, *hosts)
    (name,) = first.asked
    first.prepare(control_plane, name, "LOST")
    first.prepare(control_plane, name, "FAILED", fault="user")
    assert Preparation.objects.get(host=first.row).phase == "WANTED"


def test_reports_of_who_lost_the_lease_are_not_stored(job, hosts, control_plane):
    first = hosts[0]
    settle(control_plane, *hosts)
    (name,) = first.asked
    first.row.lease_token = 6
    first.row.refresh_from_db = lambda: None
    first.prepare(control_plane, name)
    assert Preparation.objects.get(host=first.row).phase == "WANTED"


def test_the_sweep_settles_what_a_process_left_between_its_two_transactions(job, hosts, control_plane):
    settle(control_plane, *hosts)
    Preparation.objects.update(phase="READY")
    jobs, on = prepared.settle(timezone.now())
    assert jobs == {job.pk} and on == {host.row.pk for host in hosts}
    settle(control_plane, *hosts)
    assert len(hosts[0].started_runs) == 1


def test_only_a_host_that_does_not_answer_starts_too_late(job, hosts, control_plane, settings):
    settings.TRAINYARD = replace(settings.TRAINYARD, start_s=60.0)
    settle(control_plane, *hosts)
    long_ago = timezone.now() - timedelta(hours=5)
    Run.objects.update(created_at=long_ago)
    advance_quietly([job.pk], Clock())
    job.refresh_from_db()
    assert job.state == "PENDING", "it may take as long as it takes"
    Host.every.filter(pk=hosts[0].row.pk).update(status=HostStatus.UNREACHABLE, status_since=long_ago)
    advance_quietly([job.pk], Clock())
    job.refresh_from_db()
    assert job.outcome == "QUEUED" or job.state == "QUEUED"


def test_a_restart_on_the_same_host_needs_nothing_new(job, hosts, control_plane):
    settle(control_plane, *hosts)
    (name,) = hosts[0].asked
    Run.objects.update(order={**Run.objects.first().order, "code": {"tree": "abc"}})
    for host in hosts:
        host.prepare(control_plane, name)
    settle(control_plane, *hosts)
    run = hosts[0].started_runs[0]
    hosts[0].end(control_plane, run, exit_signal=9)
    Run.objects.update(restart_at=None)
    advance_quietly([job.pk], Clock(timezone.now() + timedelta(minutes=5)))
    new = Run.objects.exclude(number=0).get()
    assert not new.preparing and new.needs.count() == 1


def test_what_is_gone_from_a_host_is_asked_for_anew_by_the_next_attempt(job, hosts, control_plane):
    settle(control_plane, *hosts)
    (name,) = hosts[0].asked
    for host in hosts:
        host.prepare(control_plane, name)
    settle(control_plane, *hosts)
    hosts[0].end(control_plane, hosts[0].started_runs[0], why="refused", refusal="unprepared")
    assert Preparation.objects.get(host=hosts[0].row).phase == "WANTED"
    settle(control_plane, *hosts)
    Job.every.update(rests_until=None, queued_at=timezone.now())
    control_plane._decider.submit((), place=True)
    settle(control_plane, *hosts)
    assert [each.asked for each in hosts[0].asked] == [1, 2] and [each.asked for each in hosts[1].asked] == [
        1
    ]
    job.refresh_from_db()
    assert job.internal_tries == 1, "it was prepared for this very job, so this is not without end"


def test_a_job_with_an_image_asks_for_it_and_starts_in_a_container(hosts, submit, control_plane):
    document = gang(pool_of(machine="n1-standard-4"))
    document["jobSpec"]["workerPoolSpecs"][0]["containerSpec"] = {
        "imageUri": "ghcr.io/lab/train:1",
        "args": ["-v"],
    }
    submit(document)
    settle(control_plane, *hosts)
    (host,) = [host for host in hosts if host.asked]
    ((name, what),) = host.asked.items()
    assert (name.kind, what) == (
        "image",
        {"engine": "podman", "image": "ghcr.io/lab/train:1", "always": True},
    )
    host.prepare(control_plane, name)
    settle(control_plane, *hosts)
    ((run, fake),) = host.runs.items()
    assert fake.order["runtime"] == {
        "kind": "podman",
        "image": "ghcr.io/lab/train:1",
        "entrypoint": None,
        "args": ["-v"],
    }
    assert fake.order["command"] == ["-v"]


def test_what_a_host_threw_away_is_asked_for_anew_and_costs_no_try(job, hosts, submit, control_plane):
    first, second = hosts
    settle(control_plane, *hosts)
    (name,) = first.asked
    for host in hosts:
        host.prepare(control_plane, name)
    settle(control_plane, *hosts)
    for host in hosts:
        for run in list(host.runs):
            host.end(control_plane, run, exit_code=0)
    settle(control_plane, *hosts)
    again = submit(gang(pool_of(machine="n1-standard-4"), pool_of(machine="n1-standard-4")))
    settle(control_plane, *hosts)
    refused = first.started_runs[-1]
    assert Run.objects.get(pk=refused).job == again
    first.runs[refused].never_started = True
    first.end(control_plane, refused, why="refused", refusal="unprepared", message="the code is gone")
    row = Preparation.objects.get(host=first.row)
    assert (row.phase, row.asked) == ("WANTED", 2)
    first.prepare(control_plane, name)
    row.refresh_from_db()
    assert row.phase == "WANTED", "what it said before is not believed any more"
    settle(control_plane, *hosts)
    control_plane._decider.submit((), place=True)
    settle(control_plane, *hosts)
    again.refresh_from_db()
    assert (again.state, again.internal_tries, again.job_retries) == ("PENDING", 0, 0), again.reason
    assert len(first.started_runs) == 2, "it is held back until the host has it again"
    (anew,) = [name for name in first.asked if name.asked == 2]
    first.prepare(control_plane, anew)
    settle(control_plane, *hosts)
    assert len(first.started_runs) == 3
