"""The message that a study has ended, and to whom it goes."""

from __future__ import annotations

import pytest
from django.utils import timezone

from agents.infra.sentences import shown
from jobs.models import Notification, Role, TuningJob
from jobs.notifications import digest, targets
from jobs.projects import members
from jobs.rules.notifications import USUAL
from jobs.tuning import extending, tuning_jobs
from tests.unit.jobs.tuning.conftest import asked
from tests.unit.jobs.tuning.test_tuning_jobs import member

pytestmark = pytest.mark.django_db


def listening(owner, events=("study",)):
    return targets.add(owner, "hook", "https://x.example/", list(events), 1.0, "alice", timezone.now())[0]


def ran(study, **changes):
    study.submit(asked(maxTrialCount=2, **changes)).run()
    study.end(1, loss=0.5)
    study.run()
    study.end(2, loss=0.25)
    return study.run()


def messages():
    return [each for each in Notification.objects.order_by("pk") if each.event == "study"]


def test_a_study_that_succeeded_is_told_with_its_best_trial(study, alice, project):
    listening(alice)
    listening(project)
    ran(study)
    first, second = messages()
    assert first.text == second.text and "study" in USUAL
    assert shown(first.text["title"]) == "Study “search”: it succeeded"
    text = shown(first.text["text"])
    assert text.startswith("2 trials in ") and "without a result" not in text
    parameters = study.trials()[1].parameters
    assert f"Best, trial 2: loss=0.25, with lr={parameters['lr']:.5g}, depth={parameters['depth']}" in text
    told = first.text["data"]["study"]
    assert (told["id"], told["state"], told["trials"], told["succeeded"]) == (
        str(study.row.pk),
        "SUCCEEDED",
        2,
        2,
    )
    assert told["best"] == [{"id": "2", "metrics": {"loss": 0.25}, "parameters": parameters}]


def test_a_study_that_failed_or_was_cancelled_is_told(study, alice):
    listening(alice)
    study.submit().run()
    study.end(1, code=7)
    study.run()
    [failed] = messages()
    assert shown(failed.text["title"]) == "Study “search”: it failed"
    assert "1 of 1 trials failed" in shown(failed.text["text"]) and "No trial has a result." in shown(
        failed.text["text"]
    )
    assert "2 of them without a result" in shown(failed.text["text"])
    study.submit()
    tuning_jobs.cancel(study.row, "alice", timezone.now())
    study.run()
    assert shown(messages()[-1].text["title"]) == "Study “search”: it was cancelled"


def test_a_study_that_ends_again_is_told_again(study, alice):
    listening(alice)
    ran(study)
    extending.extend(study.row.pk, {"maxTrialCount": 3}, "alice", timezone.now())
    study.run()
    study.end(3, loss=0.125)
    study.run()
    assert ["trial 3" in shown(each.text["text"]) for each in messages()] == [False, True]


def test_who_did_not_ask_or_may_not_see_it_any_more_is_not_told(study, alice, project):
    bob = member("bob", Role.SUBMITTER)
    listening(alice)
    listening(bob, ("succeeded",))
    study.submit(asked(maxTrialCount=1), owner=bob).run()
    study.end(1, loss=0.5)
    study.run()
    assert messages() == []
    listening(bob)
    study.submit(asked(maxTrialCount=1), owner=bob).run()
    study.end(1, loss=0.5)
    members.remove(project, bob, "alice", timezone.now())
    study.run()
    assert TuningJob.objects.filter(state="SUCCEEDED").count() == 2 and messages() == []


def test_a_digest_names_the_studies_that_have_ended(study, alice):
    ran(study)
    text = shown(digest._about_studies(alice, study.row.created_at))
    assert text == f"Studies that have ended:\n- search ({study.row.pk}): it succeeded"
    assert digest._about_studies(alice, timezone.now()) == ""
