"""A study that learns from earlier ones: what is copied at its submit is all that it ever learns from them."""

from __future__ import annotations

import pytest
from django.utils import timezone

from agents.infra.refusals import Refused
from jobs.models import PriorStudy, Project, Trial, TuningJob
from jobs.tuning import prior_studies, tuning_jobs
from tests.unit.jobs.tuning.conftest import asked

pytestmark = pytest.mark.django_db


def searched(study, count=6):
    """An earlier study whose best learning rate is 0.1, with few layers; it is over."""
    spec = {**asked()["studySpec"], "algorithm": "RANDOM_SEARCH"}
    study.submit(asked(maxTrialCount=count, parallelTrialCount=1, studySpec=spec, displayName="first")).run()
    for number in range(1, count + 1):
        drawn = study.trials()[-1].parameters
        study.end(number, loss=abs(drawn["lr"] - 0.1) + drawn["depth"])
        study.run()
    assert study.row.state == "SUCCEEDED"
    return study.row


def following(*names, **changes):
    spec = {**asked()["studySpec"], "transferLearningConfig": {"priorStudyNames": list(map(str, names))}}
    spec.pop("algorithm")
    return asked(studySpec={**spec, **changes}, parallelTrialCount=1)


def first_point(study, document, seed=5):
    study.submit(document)
    TuningJob.every.filter(pk=study.row.pk).update(seed=seed)
    study.run()
    return study.trials()[0].parameters


def test_the_first_trial_knows_what_an_earlier_study_found(study):
    earlier = searched(study)
    with_prior = first_point(study, following(earlier.pk))
    made = study.row
    assert len(study.trials()) == 1 and PriorStudy.objects.get().display_name == "first"
    tuning_jobs.cancel(made, "alice", timezone.now())
    study.run()
    without = following()
    without["studySpec"].pop("transferLearningConfig")
    assert first_point(study, without) != with_prior


def test_suggestions_stay_whatever_becomes_of_the_earlier_study(study):
    earlier = searched(study)
    study.submit(following(earlier.pk))
    TuningJob.every.filter(pk=study.row.pk).update(seed=5)
    known = prior_studies.trials_of(study.row)
    tuning_jobs.delete(earlier, "alice", timezone.now())
    Trial.objects.filter(tuning_job=earlier).update(
        final={"step": 1, "elapsed": 1.0, "metrics": {"loss": -99.0}}
    )
    assert prior_studies.trials_of(study.row) == known and len(known[0]) == 6
    study.run()
    assert study.trials()[0].state == "ACTIVE"


def test_a_value_that_is_no_number_is_copied_too(study):
    study.submit(asked(maxTrialCount=2, parallelTrialCount=1)).run()
    study.end(1, loss=float("nan"))
    study.run()
    study.end(2, loss=float("inf"))
    study.run()
    study.submit(following(study.row.pk)).run()
    assert study.trials()[0].state == "ACTIVE"
    assert [each["final"]["metrics"]["loss"] for each in PriorStudy.objects.get().trials] == [
        "NaN",
        "Infinity",
    ]


def refused(study, *names, **changes):
    with pytest.raises(Refused) as found:
        study.submit(following(*names, **changes))
    assert not TuningJob.every.filter(display_name="search").exists()
    return found.value.field.rpartition(".")[2], found.value.message


def test_what_cannot_be_learnt_from_is_refused_with_its_place(study, project):
    earlier = searched(study, 2)
    assert refused(study, earlier.pk, 7)[0] == "prior_study_names[1]"
    name = "projects/{}/locations/default/hyperparameterTuningJobs/{}"
    assert refused(study, name.format("elsewhere", earlier.pk))[0] == "prior_study_names[0]"
    narrow = [{"parameterId": name, "categoricalValueSpec": {"values": ["a"]}} for name in ("lr", "depth")]
    assert "no trial with a result in the space" in refused(study, earlier.pk, parameters=narrow)[1]
    assert (
        "other parameters: depth"
        in refused(study, earlier.pk, parameters=asked()["studySpec"]["parameters"][:1])[1]
    )
    other = Project.objects.create(name="elsewhere", created_at=timezone.now())
    TuningJob.every.filter(pk=earlier.pk).update(project=other)
    assert "is no study of project default" in refused(study, earlier.pk)[1]
    TuningJob.every.filter(pk=earlier.pk).update(project=project, deleted_at=timezone.now())
    assert "is no study of project default" in refused(study, earlier.pk)[1]


def test_the_same_request_makes_one_study_although_the_earlier_one_is_gone(study):
    earlier = searched(study, 2)
    first = study.submit(following(earlier.pk), request_id="once").row
    tuning_jobs.delete(earlier, "alice", timezone.now())
    assert study.submit(following(earlier.pk), request_id="once").row == first
    assert PriorStudy.objects.count() == 1
