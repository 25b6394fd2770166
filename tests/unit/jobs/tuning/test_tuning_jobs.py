"""A study from its submit to its end: its trials are jobs, with parameters that are drawn when there is a place."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from agents.infra.clock import Clock
from agents.infra.refusals import Conflict, Refused
from agents.models import Host, HostStatus
from jobs import services
from jobs.models import (
    Job,
    JobLabel,
    Membership,
    Project,
    Role,
    Run,
    Trial,
    TuningJob,
    TuningSecret,
)
from jobs.projects import members
from jobs.rules.scheduling.policy import decide_queue
from jobs.rules.spec.json_fields import InvalidDocument
from jobs.rules.tuning import decide
from jobs.rules.tuning.ended_trials import DELETED
from jobs.scheduling import scheduler
from jobs.secrets import of_jobs
from jobs.tuning import advance, drawing, snapshot, trials, tuning_jobs
from jobs.wake import hints
from tests.unit.jobs.tuning.conftest import asked

pytestmark = pytest.mark.django_db


def trial_spec(**container):
    document = asked()["trialJobSpec"]
    document["workerPoolSpecs"][0]["containerSpec"] |= container
    return document


def states(study):
    return [each.state for each in study.trials()]


def args_of(trial):
    trial.job.refresh_from_db()
    return trial.job.spec["workerPoolSpecs"][0]["containerSpec"]["args"]


def test_a_study_runs_to_its_end(study):
    study.submit().run()
    for number, loss in enumerate((0.5, 0.2, 0.4, 0.3), start=1):
        study.end(number, loss=loss)
        study.run()
    row = study.row
    assert (row.state, row.error_code, states(study)) == ("SUCCEEDED", None, ["SUCCEEDED"] * 4)
    assert [each.final["metrics"] for each in study.trials()] == [
        {"loss": each} for each in (0.5, 0.2, 0.4, 0.3)
    ]
    assert row.started_at and row.ended_at and row.due_at is None
    assert Run.objects.filter(released_at=None).count() == 0


def test_no_more_trials_run_than_were_asked_for(study):
    study.submit().run()
    assert states(study) == ["ACTIVE", "ACTIVE"]
    study.end(1, loss=0.5)
    study.run()
    assert states(study) == ["SUCCEEDED", "ACTIVE", "ACTIVE"]


def test_parameters_are_drawn_when_there_is_a_place_and_not_before(study):
    study.host.row.cpus = 1
    study.host.row.save()
    study.submit(
        asked(
            trialJobSpec={
                **trial_spec(),
                "workerPoolSpecs": [
                    {**trial_spec()["workerPoolSpecs"][0], "machineSpec": {"machineType": "n1-standard-1"}}
                ],
            }
        )
    ).run()
    first, second = study.trials()
    assert (first.state, second.state) == ("ACTIVE", "REQUESTED")
    assert second.parameters is None and second.job.undrawn and args_of(second) == ["--fast"]
    study.end(1, loss=0.5)
    study.run()
    second.refresh_from_db()
    assert second.state == "ACTIVE" and second.parameters
    second.job.refresh_from_db()
    assert (second.job.undrawn, second.job.state) == (False, "RUNNING")


def test_programs_get_the_parameters_as_arguments_and_know_their_trial(study):
    study.submit().run()
    for trial in study.trials():
        lr, depth = trial.parameters["lr"], trial.parameters["depth"]
        assert args_of(trial) == ["--fast", f"--lr={lr!r}", f"--depth={depth}"]
        order = Run.objects.get(job=trial.job).order
        assert order["command"][-2:] == [f"--lr={lr!r}", f"--depth={depth}"]
        assert order["env"]["CLOUD_ML_TRIAL_ID"] == str(trial.number)
        assert order["env"]["AIP_MODEL_DIR"].endswith(f"/out/{trial.number}/model/")
        assert trial.job.display_name == f"search-trial-{trial.number}"
    assert JobLabel.objects.filter(key=trials.LABEL, value=str(study.row.pk)).count() == 2


def test_the_same_seed_draws_the_same_parameters(study):
    study.submit().run()
    first = [each.parameters for each in study.trials()]
    tuning_jobs.cancel(study.row, "alice", timezone.now())
    study.run()
    study.submit(asked(trainyard={"seed": str(study.row.seed)})).run()
    assert [each.parameters for each in study.trials()] == first
    tuning_jobs.cancel(study.row, "alice", timezone.now())
    study.run()
    study.submit(asked(trainyard={"seed": 2**63 - 1})).run()
    assert study.row.seed == 2**63 - 1 and [each.parameters for each in study.trials()] != first


def test_a_request_that_comes_again_asks_for_the_same_seed_or_for_any(study):
    made = study.submit(asked(trainyard={"seed": 7}), request_id="once").row
    assert study.submit(asked(trainyard={"seed": 7}), request_id="once").row == made
    assert study.submit(asked(), request_id="once").row == made
    with pytest.raises(Conflict):
        study.submit(asked(trainyard={"seed": 8}), request_id="once")


def test_parameters_never_change_once_they_are_drawn(study):
    study.submit().run()
    before = [each.parameters for each in study.trials()]
    Trial.objects.update(wanted_at=timezone.now())
    assert drawing.draw_next(study.row.pk, timezone.now()) == ([], False)
    study.run()
    assert [each.parameters for each in study.trials()] == before


def test_a_trial_that_lost_its_turn_while_it_was_drawn_is_drawn_later(study):
    """A pass that found the place for it, and a dispatcher that died before anything was drawn."""
    study.submit(asked(parallelTrialCount=1))
    study.look()
    assert states(study) == ["REQUESTED"] and study.trials()[0].wanted_at
    # Mostly it is drawn at once, so that nobody reads that it waits.
    assert study.trials()[0].job.reason == "Waits to be placed."
    scheduler.schedule(timezone.now())
    assert (
        study.trials()[0].job.reason
        == "There is a place for it. The parameters of this trial are being drawn."
    )
    assert advance.due(timezone.now() - timedelta(days=1)) == [study.row.pk]
    study.run()
    assert states(study)[0] == "ACTIVE"


def test_the_next_trial_is_placed_and_drawn_by_the_look_that_asks_for_it(study, monkeypatch):
    """Neither a hint to a dispatcher nor one from there is waited for, and nobody is asked to look once more."""
    study.submit(asked(parallelTrialCount=1)).run()
    study.end(1, loss=0.5)
    hinted = []
    monkeypatch.setattr(hints, "tuning", hinted.append)
    advance.advance([study.row.pk], Clock())
    second = study.trials()[1]
    assert (second.state, second.job.undrawn) == ("ACTIVE", False) and second.parameters
    assert [each for each in hinted if each] == []
    # The trials of another study are drawn by whoever looks at that.
    study.submit(asked(parallelTrialCount=1))
    scheduler.schedule(timezone.now(), drawn_by_caller=second.tuning_job_id)
    assert [each for each in hinted if each] == [[study.row.pk], {study.row.pk}]


def test_a_job_that_was_cancelled_is_not_drawn(study):
    study.submit(asked(parallelTrialCount=1))
    study.look()
    services.cancel(study.trials()[0].job, "alice", timezone.now())
    assert drawing.draw_next(study.row.pk, timezone.now()) == ([], False)
    study.run()
    assert study.trials()[0].infeasible_reason == "The study ended before its parameters were drawn."


def grid(values, **study):
    parameters = [{"parameterId": "depth", "discreteValueSpec": {"values": values}}]
    spec = {**asked()["studySpec"], "algorithm": "GRID_SEARCH", "parameters": parameters, **study}
    return asked(maxTrialCount=9, studySpec=spec)


def test_a_grid_ends_with_its_last_point_however_noisy_measurements_are(study):
    study.submit(grid([1, 2, 3], observationNoise="HIGH")).run()
    for number in (1, 2, 3):
        study.end(number, loss=0.5)
        study.run()
    assert sorted(each.parameters["depth"] for each in study.trials()) == [1, 2, 3]
    assert (study.row.state, states(study)) == ("SUCCEEDED", ["SUCCEEDED"] * 3)


def test_a_grid_is_tried_to_its_end_although_a_trial_was_cancelled_before_it_had_parameters(study):
    study.submit(grid([1, 2, 3], observationNoise="LOW"))
    services.cancel(study.trials()[0].job, "alice", timezone.now())
    study.run()
    for number in (2, 3, 4):
        study.end(number, loss=0.5)
        study.run()
    assert sorted(each.parameters["depth"] for each in study.trials()[1:]) == [1, 2, 3]
    assert (study.row.state, states(study)) == ("SUCCEEDED", ["INFEASIBLE"] + ["SUCCEEDED"] * 3)


def test_a_trial_for_which_no_point_is_left_gives_up_its_place(study, monkeypatch):
    monkeypatch.setattr("jobs.rules.tuning.search.suggest.suggest", lambda *_: None)
    study.submit(asked(maxTrialCount=1)).run().run()
    [trial] = study.trials()
    assert (trial.job.state, trial.job.error_message) == ("CANCELLED", "Every point of the space was tried.")
    assert study.row.state == "SUCCEEDED"


def test_trials_that_wait_for_their_parameters_keep_no_job_from_its_turn(study, alice, project, monkeypatch):
    """One pass may start one job, and two trials are before it. Each pass would find these again, and place none."""
    passes = []

    def one(*seen):
        passes.append(seen)
        assert len(passes) < 10
        return decide_queue(*seen, max_placed=1)

    monkeypatch.setattr(drawing, "draw_next", lambda *_: ([], False))
    study.submit()
    advance.advance([study.row.pk], Clock())
    Trial.objects.update(wanted_at=None)
    document = {"displayName": "plain", "jobSpec": trial_spec()}
    plain = services.submit(project, alice, document, "default", None, timezone.now())
    monkeypatch.setattr(scheduler, "decide_queue", one)
    scheduler.schedule(timezone.now())
    plain.refresh_from_db()
    assert plain.state == "PENDING" and len(passes) <= 2
    assert len(study.trials()) == 2 and all(each.wanted_at for each in study.trials())
    assert {each.job.state for each in study.trials()} == {"QUEUED"}


def test_a_failed_first_trial_ends_the_study(study):
    study.submit().run()
    study.end(1, code=7)
    study.run()
    assert (study.row.state, study.row.error_code) == ("FAILED", 3)
    assert study.row.error_message.startswith(
        "1 of 1 trials failed. The first was trial 1: The replica workerpool0-0"
    )
    assert states(study) == ["INFEASIBLE", "INFEASIBLE"]
    assert all(each.job.state in ("FAILED", "CANCELLED") for each in study.trials())


def test_a_trial_waits_for_its_last_reports(study):
    study.submit().run()
    study.end(1, loss=0.5, whole=False)
    study.run()
    assert (states(study)[0], study.trials()[0].job.state) == ("ACTIVE", "SUCCEEDED")
    study.report(1, step=2, loss=0.4)
    study.arrive(1)
    study.run()
    assert states(study)[0] == "SUCCEEDED"
    assert (study.trials()[0].final["step"], study.trials()[0].final["metrics"]) == (2, {"loss": 0.4})


def test_a_study_whose_trial_is_deleted_goes_on(study):
    """Its job was over, and the rest of its reports was not here yet: nobody waits for it any more."""
    study.submit(asked(maxTrialCount=3)).run()
    study.end(1, loss=0.5)
    study.run()
    study.end(2, loss=0.5, whole=False)
    study.run()
    assert states(study)[1] == "ACTIVE"
    services.delete(study.trials()[1].job, "alice", timezone.now())
    assert Run.objects.get(job__trial_row__number=2).metrics_proof == "cut"
    study.run()
    deleted = study.trials()[1]
    assert (deleted.state, deleted.infeasible_reason) == ("INFEASIBLE", DELETED)
    assert snapshot.tried(deleted).cancelled, "a search learns nothing from it"
    study.end(3, loss=0.4)
    study.run()
    assert study.row.state == "SUCCEEDED"


def test_a_cancelled_study_does_not_wait_for_reports_for_ever(study):
    study.submit().run()
    study.end(1, loss=0.5, whole=False)
    tuning_jobs.cancel(study.row, "alice", timezone.now())
    study.run()
    assert study.row.state == "CANCELLING"
    advance.advance([study.row.pk], Clock(timezone.now() + timedelta(minutes=2)))
    study.row.refresh_from_db()
    assert study.row.state == "CANCELLED" and study.trials()[0].final["metrics"] == {"loss": 0.5}


def test_a_trial_that_is_over_keeps_a_hundred_of_its_measurements(study):
    """Also when its job is deleted: the study has them."""
    study.submit().run()
    for step in range(300):
        study.report(1, step=step, loss=1.0 + step)
    study.end(1, step=300, loss=0.5)
    study.run()
    trial = study.trials()[0]
    services.delete(trial.job, "alice", timezone.now())
    kept = Trial.objects.get(pk=trial.pk).measurements
    assert 100 <= len(kept) <= 110 and [kept[0]["step"], kept[-1]["step"]] == [0, 300]
    assert kept[-1] == {**trial.final, "average": (sum(range(1, 301)) + 0.5) / 301}


def test_a_value_that_is_no_number_is_kept(study):
    study.submit().run()
    study.end(1, loss=float("nan"))
    study.run()
    assert study.trials()[0].final["metrics"] == {"loss": "NaN"}
    assert states(study) == ["SUCCEEDED", "ACTIVE", "ACTIVE"]


def test_a_cancelled_study_ends_when_its_jobs_have_ended(study):
    study.submit().run()
    tuning_jobs.cancel(study.row, "alice", timezone.now())
    advance.advance([study.row.pk], Clock())
    study.row.refresh_from_db()
    assert study.row.state == "CANCELLING"
    study.run()
    assert (study.row.state, study.row.error_code, study.row.error_message) == ("CANCELLED", 1, "CANCELED")
    assert {each.job.state for each in study.trials()} == {"CANCELLED"}


def test_a_trial_that_a_person_cancels_is_replaced(study):
    study.submit().run()
    services.cancel(study.trials()[0].job, "alice", timezone.now())
    study.run()
    assert states(study) == ["INFEASIBLE", "ACTIVE", "ACTIVE"]
    assert study.trials()[0].infeasible_reason == "Cancelled by alice."


def test_what_is_refused_for_a_trial_is_refused_for_the_study(study, alice):
    pools = [{**trial_spec()["workerPoolSpecs"][0], "machineSpec": {"machineType": "n1-standard-96"}}]
    with pytest.raises(Refused) as refused:
        study.submit(asked(trialJobSpec={"workerPoolSpecs": pools}))
    assert refused.value.field.startswith("trial_job_spec.worker_pool_specs[0]")
    assert not TuningJob.every.exists() and not Job.every.exists()


def test_a_mistake_in_the_document_names_its_field(study):
    with pytest.raises(InvalidDocument) as refused:
        study.submit(asked(maxTrialCount=0))
    assert [each.field for each in refused.value.violations] == ["max_trial_count"]


def test_the_same_request_makes_one_study(study):
    first = study.submit(request_id="once").row
    assert study.submit(request_id="once").row == first
    with pytest.raises(Conflict):
        study.submit(asked(maxTrialCount=5), request_id="once")
    tuning_jobs.cancel(first, "alice", timezone.now())
    study.run()
    tuning_jobs.delete(study.row, "alice", timezone.now())
    with pytest.raises(Conflict):
        study.submit(request_id="once")


def test_a_study_that_runs_is_not_deleted(study):
    study.submit()
    with pytest.raises(Refused):
        tuning_jobs.delete(study.row, "alice", timezone.now())


def test_each_trial_has_the_secrets_of_the_submit_and_they_go_with_the_study(study, project, alice):
    env = [{"name": "TOKEN", "value": "hush", "secret": True}]
    study.submit(asked(trialJobSpec=trial_spec(env=env))).run()
    assert "hush" not in str(study.row.trial_spec)
    for trial in study.trials():
        assert of_jobs.values_of(trial.job_id) == ["hush"]
    tuning_jobs.cancel(study.row, "alice", timezone.now())
    study.run()
    assert not TuningSecret.objects.exists()


def test_a_study_whose_owner_is_gone_waits_and_says_why(study):
    somebody = member("gone")
    study.submit(owner=somebody).run()
    somebody.delete()
    study.end(1, loss=0.5)
    study.run()
    assert study.row.reason == "Trial 3 cannot be submitted: owner: Its owner gone is not there any more."
    assert states(study) == ["SUCCEEDED", "ACTIVE"]
    assert study.row.due_at is not None


def member(name, role=Role.SUBMITTER):
    user = User.objects.create_user(name)
    Membership.objects.create(project=Project.objects.get(name="default"), user=user, role=role)
    return user


@pytest.mark.parametrize("how", ["removed", "viewer", "deactivated"])
def test_a_study_whose_owner_may_not_submit_any_more_gets_no_trials(study, project, how):
    bob = member("bob")
    study.submit(owner=bob).run()
    if how == "removed":
        members.remove(project, bob, "alice", timezone.now())
    elif how == "viewer":
        members.set_role(project, bob, Role.VIEWER, "alice", timezone.now())
    else:
        User.objects.filter(pk=bob.pk).update(is_active=False)
    study.end(1, loss=0.5)
    study.run()
    assert states(study) == ["SUCCEEDED", "ACTIVE"]
    assert study.row.reason == (
        "Trial 3 cannot be submitted: owner: Its owner bob may not submit jobs to project default any more."
    )
    User.objects.filter(pk=bob.pk).update(is_active=True)
    members.set_role(project, bob, Role.SUBMITTER, "alice", timezone.now())
    study.run()
    assert (states(study), study.row.reason) == (["SUCCEEDED", "ACTIVE", "ACTIVE"], "")


def test_a_high_priority_ends_with_the_right_to_it(study, project):
    ann = member("ann", Role.ADMIN)
    project.highest_priority = "high"
    project.save()
    row = study.submit(asked(labels={"trainyard-priority": "high"}), owner=ann, may_prioritize=True).row
    study.run()
    assert row.trials.first().job.priority > 0
    members.set_role(project, ann, Role.SUBMITTER, "alice", timezone.now())
    study.end(1, loss=0.5)
    study.run()
    assert "high is for admins of the project" in study.row.reason


def test_a_study_says_that_it_waits_for_the_rest_of_metrics(study, settings, monkeypatch):
    study.submit(asked(maxTrialCount=1)).run()
    study.end(1, loss=0.5, whole=False)
    study.run()
    assert study.row.reason == ""
    monkeypatch.setattr(decide, "LATE", timedelta())
    study.run()
    late = "Trial 1 has ended, and waits for the rest of its metrics."
    assert study.row.reason == late
    Host.objects.update(status=HostStatus.UNREACHABLE)
    advance.advance([study.row.pk], Clock())
    study.row.refresh_from_db()
    assert study.row.reason == f"{late} No answer from {study.host.row.name}."
    settings.TRAINYARD = replace(settings.TRAINYARD, min_free_mb=1 << 40)
    advance.advance([study.row.pk], Clock())
    study.row.refresh_from_db()
    assert study.row.reason.startswith(f"{late} The disk of this console is nearly full")
    study.arrive(1)
    advance.advance([study.row.pk], Clock())
    study.row.refresh_from_db()
    assert (study.row.state, study.row.reason) == ("SUCCEEDED", "")


def test_a_fault_of_one_study_delays_no_other(study, monkeypatch, caplog):
    first = study.submit().row
    second = study.submit().row
    TuningJob.every.filter(pk=first.pk).update(study={"parameters": "nonsense"})
    study.run()
    assert second.trials.first().state == "ACTIVE"
    first.refresh_from_db()
    assert first.state == "QUEUED" and first.due_at > timezone.now()
    # Its trial keeps no place from other jobs meanwhile.
    assert first.trials.get().job.rests_until > timezone.now()
    assert f"Tuning job {first.pk} could not be advanced" in caplog.text


def test_a_trial_that_a_rule_stops_keeps_what_it_measured(study):
    rule = {"medianAutomatedStoppingSpec": {}}
    document = asked(maxTrialCount=9, parallelTrialCount=1, studySpec={**asked()["studySpec"], **rule})
    study.submit(document).run()
    for number in range(1, 7):
        for step in range(1, 7):
            study.report(number, step=step, loss=0.1 * number)
        study.end(number, step=7, loss=0.1 * number)
        study.run()
    for step in range(1, 7):
        study.report(7, step=step, loss=50.0)
    study.run()
    study.arrive(7)
    study.run()
    stopped = study.trials()[6]
    assert (stopped.state, stopped.final["metrics"]) == ("SUCCEEDED", {"loss": 50.0})
    assert stopped.stopped_early.startswith("Stopped early by the median rule")
    assert (stopped.job.state, stopped.job.error_message) == ("CANCELLED", stopped.stopped_early)
    assert states(study)[7] == "ACTIVE"
