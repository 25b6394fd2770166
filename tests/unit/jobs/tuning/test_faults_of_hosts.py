"""A study whose hosts cannot run its trials, and one whose trials reach their timeout: what its rows say then."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agents.infra.clock import Clock
from agents.models import Host, HostStatus
from jobs.lifecycle import advance as jobs_advance
from jobs.models import Job, Run
from jobs.tuning import advance, snapshot
from tests.unit.jobs.tuning.conftest import asked

pytestmark = pytest.mark.django_db


@pytest.fixture
def broken(study):
    """broken(number): the host of this trial cannot start it, and its job is not run again."""

    def submit(**others):
        document = asked(parallelTrialCount=1, **others)
        document["trialJobSpec"]["scheduling"] = {"disableRetries": True}
        return study.submit(document).run()

    def refuse(number, refusal="disk_full"):
        [run] = [each for each in study.host.runs if each.startswith(f"{study.trials()[number - 1].job_id}-")]
        study.host.end(study.control_plane, run, why="refused", refusal=refusal)
        # It is checked, and found to be well.
        Host.objects.update(status=HostStatus.UP)
        study.run()

    study.start, study.refuse = submit, refuse
    return study


def points(study):
    return [each.parameters for each in study.trials()]


def test_a_trial_that_a_host_could_not_start_is_tried_again_with_its_parameters(broken):
    broken.start(maxTrialCount=2)
    broken.refuse(1)
    first, second = broken.trials()
    assert (first.job.state, first.job.error_code) == ("FAILED", 13)
    assert (broken.row.state, first.state, first.ending) == ("RUNNING", "INFEASIBLE", "HOSTS")
    # By the job's history: its error says only that there was an internal one.
    assert "workerpool0-0 could not be started on h1 (disk_full)" in first.infeasible_reason
    assert (second.state, second.parameters) == ("ACTIVE", first.parameters)
    seen = snapshot.tried(first)
    assert seen.cancelled and not seen.failed, "a search learns nothing from it"
    broken.end(2, loss=0.5)
    broken.run()
    broken.end(3, loss=0.4)
    broken.run()
    assert [each.state for each in broken.trials()] == ["INFEASIBLE", "SUCCEEDED", "SUCCEEDED"]
    assert points(broken)[2] != points(broken)[1]
    assert broken.row.state == "SUCCEEDED"


def test_an_order_that_each_host_refuses_is_no_fault_of_hosts(broken):
    """The first trial shows it, and the study ends."""
    broken.start(maxTrialCount=60)
    broken.refuse(1, "bad_order")
    [first] = broken.trials()
    assert (first.job.error_code, first.state, first.ending) == (13, "INFEASIBLE", "")
    assert (broken.row.state, broken.row.error_code) == ("FAILED", 3)
    assert "could not be started on h1 (bad_order)" in broken.row.error_message


def test_a_trial_that_waited_for_a_place_as_long_as_it_may_says_so(study):
    document = asked(parallelTrialCount=1)
    document["trialJobSpec"]["scheduling"] = {"maxWaitDuration": "60s", "disableRetries": True}
    Host.objects.update(status=HostStatus.UNREACHABLE)
    study.submit(document).run()
    jobs_advance.advance([study.trials()[0].job_id], Clock(timezone.now() + timedelta(minutes=2)))
    study.run()
    first = study.trials()[0]
    assert (first.job.error_code, first.ending) == (8, "HOSTS")
    assert first.infeasible_reason.startswith("It found no place. No capacity in default for 60s")


@pytest.mark.parametrize("count", [2, 5])
def test_what_hosts_say_of_lost_trials_is_read_at_once(study, count):
    document = asked(parallelTrialCount=count, maxTrialCount=9)
    document["trialJobSpec"]["scheduling"] = {"disableRetries": True}
    study.submit(document).run()
    for run in list(study.host.runs):
        study.host.end(study.control_plane, run, why="refused", refusal="disk_full")
    rows = snapshot.trials_of(study.row)
    assert [each.job.state for each in rows] == ["FAILED"] * count
    parsed = snapshot.study_of(study.row)
    with CaptureQueriesContext(connection) as queries:
        view = snapshot.view_of(study.row, parsed, rows)
    assert all("could not be started on h1 (disk_full)" in each.error for each in view.trials)
    histories = [each["sql"] for each in queries if "jobs_transition" in each["sql"]]
    assert len(histories) == 1


def test_a_point_is_given_up_after_three_hosts_and_the_study_waits(broken, settings):
    settings.TRAINYARD = replace(settings.TRAINYARD, retry_wait_s=5.0)
    broken.start(maxTrialCount=3)
    for number in (1, 2, 3):
        broken.refuse(number)
    assert [each.ending for each in broken.trials()] == ["HOSTS", "HOSTS", "GIVEN_UP"]
    assert len({str(point) for point in points(broken)}) == 1
    assert broken.row.state == "RUNNING"
    assert broken.row.reason.startswith("Hosts failed under the last 3 trials. The next one begins at ")
    later = timezone.now() + timedelta(seconds=61)
    advance.advance([broken.row.pk], Clock(later))
    broken.run()
    fourth = broken.trials()[3]
    assert fourth.state == "ACTIVE" and fourth.parameters not in points(broken)[:3]
    assert broken.row.reason == "", "no more than one may run at once"
    broken.end(4, loss=0.5)
    broken.run()
    broken.end(5, loss=0.4)
    broken.run()
    assert (broken.row.state, len(broken.trials())) == ("SUCCEEDED", 5)


def test_a_grid_has_each_of_its_points_although_hosts_failed_under_some(broken):
    spec = asked()["studySpec"]
    spec["algorithm"] = "GRID_SEARCH"
    spec["parameters"] = [{"parameterId": "depth", "discreteValueSpec": {"values": [1, 2, 3]}}]
    broken.start(maxTrialCount=9, studySpec=spec)
    broken.refuse(1)
    broken.end(2, loss=0.5)
    broken.run()
    broken.refuse(3)
    for number in (4, 5):
        broken.end(number, loss=0.5)
        broken.run()
    found = [each.parameters["depth"] for each in broken.trials() if each.state == "SUCCEEDED"]
    assert (broken.row.state, sorted(found)) == ("SUCCEEDED", [1, 2, 3])


def time_out(study, number):
    """The host ends it at its timeout."""
    job = study.trials()[number - 1].job_id
    [run] = [each for each in study.host.runs if each.startswith(f"{job}-")]
    study.host.end(study.control_plane, run, why="timeout", exit_signal=9)
    Run.objects.filter(job=job).update(
        metrics_proof="whole", metrics_read=None, log_complete_at=timezone.now()
    )
    study.run()


def test_a_first_trial_that_times_out_without_a_metric_ends_the_study(study):
    document = asked(parallelTrialCount=1)
    document["trialJobSpec"]["scheduling"] = {"timeout": "7200s"}
    study.submit(document).run()
    study.report(1, acc=0.5)
    time_out(study, 1)
    first = study.trials()[0]
    assert (Job.every.get(pk=first.job_id).state, first.ending) == ("CANCELLED", "TIMEOUT")
    assert first.infeasible_reason == (
        "It reached its timeout of 2 h. Its program reported no measurement of loss; seen: acc."
    )
    assert (study.row.state, len(study.trials())) == ("FAILED", 1)


def test_a_search_goes_elsewhere_after_a_trial_that_timed_out_without_a_metric(study):
    study.submit(asked(parallelTrialCount=1)).run()
    study.end(1, loss=0.5)
    study.run()
    time_out(study, 2)
    assert (study.row.state, study.trials()[1].state) == ("RUNNING", "INFEASIBLE")
    assert snapshot.tried(study.trials()[1]).failed
    study.report(3, loss=0.3)
    time_out(study, 3)
    third = study.trials()[2]
    assert (third.state, third.final["metrics"]) == ("SUCCEEDED", {"loss": 0.3})
