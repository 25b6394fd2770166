"""A study that gets more trials, while it runs and after its end."""

from __future__ import annotations

import pytest
from django.utils import timezone

from agents.infra.refusals import Conflict, Refused
from jobs.models import Role, TuningSecret
from jobs.projects import projects
from jobs.rules.spec.json_fields import InvalidDocument
from jobs.secrets import of_jobs, store
from jobs.tuning import extending, tuning_jobs
from tests.unit.jobs.tuning.conftest import asked
from tests.unit.jobs.tuning.test_tuning_jobs import member, states, trial_spec

pytestmark = pytest.mark.django_db


def ended(study, document=None, **more):
    """A study of two trials that is over."""
    study.submit(document or asked(maxTrialCount=2), **more).run()
    for number in (1, 2):
        study.end(number, loss=0.5 / number)
        study.run()
    assert study.row.state == "SUCCEEDED"
    return study


def extend(study, **document):
    extending.extend(study.row.pk, document, "alice", timezone.now())
    return study.run()


def test_a_study_that_is_over_goes_on_with_its_trials_and_its_seed(study):
    ended(study)
    before = [each.parameters for each in study.trials()]
    started, seed = study.row.started_at, study.row.seed
    extend(study, maxTrialCount=4, parallelTrialCount=1)
    assert (study.row.state, study.row.ended_at, states(study)) == (
        "RUNNING",
        None,
        ["SUCCEEDED", "SUCCEEDED", "ACTIVE"],
    )
    for number in (3, 4):
        study.end(number, loss=0.1)
        study.run()
    assert (study.row.state, len(study.trials())) == ("SUCCEEDED", 4)
    assert [each.parameters for each in study.trials()][:2] == before
    assert (study.row.started_at, study.row.seed) == (started, seed) and study.row.ended_at


def test_an_extended_study_draws_what_a_longer_one_would_have_drawn(study):
    ended(study)
    first = study.row
    extend(study, maxTrialCount=3)
    drawn = [each.parameters for each in study.trials()]
    tuning_jobs.cancel(study.row, "alice", timezone.now())
    study.run()
    study.submit(asked(maxTrialCount=3))
    type(first).every.filter(pk=study.row.pk).update(seed=first.seed)
    study.run()
    study.end(1, loss=0.5)
    study.run()
    study.end(2, loss=0.25)
    study.run()
    assert [each.parameters for each in study.trials()] == drawn


def test_a_running_study_gets_more_trials_at_once(study):
    study.submit(asked(maxTrialCount=2, parallelTrialCount=1)).run()
    extend(study, maxTrialCount=3, parallelTrialCount=3)
    assert states(study) == ["ACTIVE"] * 3


def test_a_cancelled_study_goes_on(study):
    study.submit(asked(maxTrialCount=3)).run()
    study.end(1, loss=0.5)
    study.run()
    tuning_jobs.cancel(study.row, "alice", timezone.now())
    study.run()
    assert study.row.state == "CANCELLED"
    extend(study, maxTrialCount=5)
    assert (study.row.state, study.row.error_code, study.row.cancel_requested_by) == ("RUNNING", None, "")
    assert states(study)[-2:] == ["ACTIVE", "ACTIVE"]


def test_a_refused_extension_changes_nothing(study):
    ended(study)
    with pytest.raises(InvalidDocument):
        extend(study, maxTrialCount=2)
    study.row.refresh_from_db()
    assert (study.row.state, study.row.max_trials) == ("SUCCEEDED", 2)


def test_an_archived_project_gets_no_trials_by_an_extension(study, project):
    ended(study)
    projects.archive(project, "alice", timezone.now())
    with pytest.raises(Refused, match="archived"):
        extend(study, maxTrialCount=4)


def test_a_study_whose_owner_may_not_submit_any_more_is_not_opened_again(study):
    bob = member("bob", Role.SUBMITTER)
    ended(study, owner=bob)
    bob.delete()
    study.row.refresh_from_db()
    with pytest.raises(Refused, match="bob is not there any more"):
        extend(study, maxTrialCount=4)


def test_stored_secrets_are_found_again(study, project, alice):
    store.put(alice, "TOKEN", "hush", "alice", timezone.now())
    env = [{"name": "TOKEN", "valueFrom": {"secret": "TOKEN"}}]
    ended(study, asked(maxTrialCount=2, trialJobSpec=trial_spec(env=env)))
    assert not TuningSecret.objects.exists()
    extend(study, maxTrialCount=3)
    assert of_jobs.values_of(study.trials()[2].job_id) == ["hush"]


def test_secrets_that_came_with_the_study_cannot_be_found_again(study):
    env = [{"name": "TOKEN", "value": "hush", "secret": True}]
    ended(study, asked(maxTrialCount=2, trialJobSpec=trial_spec(env=env)))
    with pytest.raises(InvalidDocument) as refused:
        extend(study, maxTrialCount=3)
    [violation] = refused.value.violations
    assert violation.field.startswith("trial_job_spec.worker_pool_specs[0]")
    assert "Give it again, or store it" in violation.description


def test_the_request_that_made_an_extended_study_is_still_known(study):
    made = study.submit(asked(maxTrialCount=2), request_id="once").row
    extend(study, maxTrialCount=6)
    assert study.submit(asked(maxTrialCount=2), request_id="once").row == made
    with pytest.raises(Conflict):
        study.submit(asked(maxTrialCount=2, displayName="other"), request_id="once")


def test_a_study_that_was_extended_meanwhile_is_not_deleted(study):
    stale = ended(study).row
    extend(study, maxTrialCount=4)
    assert stale.state == "RUNNING"
    stale.state = "SUCCEEDED"
    with pytest.raises(Refused, match="Cancel it first"):
        tuning_jobs.delete(stale, "alice", timezone.now())
    study.row.refresh_from_db()
    assert study.row.deleted_at is None


def test_a_study_that_was_deleted_meanwhile_is_not_extended(study):
    ended(study)
    for _ in range(2):
        tuning_jobs.delete(study.row, "alice", timezone.now())
    with pytest.raises(Refused, match="was deleted"):
        extend(study, maxTrialCount=4)
    study.row.refresh_from_db()
    assert (study.row.state, study.row.max_trials) == ("SUCCEEDED", 2)
