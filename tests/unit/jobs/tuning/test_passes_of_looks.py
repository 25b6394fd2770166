"""The scheduling pass of a look: made where trials were asked for, and what it fails at is no fault of the study."""

from __future__ import annotations

import pytest
from django.db import OperationalError
from django.utils import timezone

from agents.infra.clock import Clock
from jobs.models import Job, Trial, TuningJob
from jobs.projects import quotas
from jobs.projects.quotas import QuotaTarget
from jobs.rules.scheduling.quota import Metric
from jobs.tuning import advance, drawing, snapshot
from jobs.wake import hints
from tests.unit.jobs.tuning.conftest import asked

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("problem", [RuntimeError("a job of somebody else"), OperationalError("a deadlock")])
def test_a_pass_that_fails_is_no_fault_of_the_study(study, monkeypatch, problem):
    """Its trials are drawn, the other studies are looked at, and a dispatcher makes the pass."""
    first = study.submit(asked(parallelTrialCount=3)).row
    TuningJob.every.filter(pk=first.pk).update(seed=7)
    Trial.objects.filter(tuning_job=first).update(wanted_at=timezone.now())
    other = study.submit().row
    passes, told, placed = [], [], []

    def fail(now, drawn_by_caller=None):
        passes.append(drawn_by_caller)
        raise problem

    monkeypatch.setattr(advance.scheduler, "schedule", fail)
    monkeypatch.setattr(hints, "tuning", told.extend)
    monkeypatch.setattr(hints, "schedule", lambda: placed.append(True))
    advance.advance([first.pk, other.pk], Clock())
    assert passes == told == [first.pk, other.pk] and len(placed) >= 2
    assert Trial.objects.get(tuning_job=first, number=1).parameters is not None
    assert first.trials.count() == 3 and other.trials.count() == 2
    assert not Job.every.filter(rests_until__isnull=False).exists()
    assert not Job.every.exclude(fault=None).exists()


def test_a_look_whose_trials_are_refused_makes_no_pass(study, project, monkeypatch):
    study.submit(asked(parallelTrialCount=3))
    TuningJob.every.filter(pk=study.row.pk).update(seed=7)
    quotas.set_limit(QuotaTarget(project), Metric.QUEUED, "", 0, "root", timezone.now())
    passes, reads = [], []
    read = snapshot.trials_of
    monkeypatch.setattr(advance.scheduler, "schedule", lambda *_, **__: passes.append(True))
    monkeypatch.setattr(snapshot, "trials_of", lambda row: reads.append(True) or read(row))
    advance.advance([study.row.pk], Clock())
    study.row.refresh_from_db()
    assert "Trial 2 cannot be submitted" in study.row.reason
    assert passes == [] and len(reads) == 1


def test_trials_are_not_read_where_none_wants_parameters(study, monkeypatch):
    study.submit()
    reads = []
    monkeypatch.setattr(snapshot, "trials_of", lambda row: reads.append(True))
    assert drawing.draw_next(study.row.pk, timezone.now()) == ([], False)
    assert reads == []
