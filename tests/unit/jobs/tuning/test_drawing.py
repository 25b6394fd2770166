"""Trials that wait for their parameters together: drawn in one transaction, as if one after the other."""

from __future__ import annotations

import itertools

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agents.infra.clock import Clock
from jobs import services
from jobs.models import Job, TuningJob
from jobs.rules.tuning.search import suggest as searches
from jobs.tuning import advance, drawing, snapshot
from tests.unit.jobs.tuning.conftest import asked

BY_MODEL = {"algorithm": "ALGORITHM_UNSPECIFIED"}


def document(parallel, **search):
    spec = {**asked()["studySpec"], **search}
    return asked(maxTrialCount=60, parallelTrialCount=parallel, studySpec=spec)


def advanced(study):
    """The study is looked at, and the process that would draw parameters is killed before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(advance, "_draw", lambda *_: None)
        advance.advance([study.row.pk], Clock())


def waiting(study, parallel, **search):
    """A study of which so many trials have a place and wait for their parameters, after some that have ended."""
    study.submit(document(parallel, **search))
    TuningJob.every.filter(pk=study.row.pk).update(seed=7)
    study.run()
    for trial in study.trials():
        study.end(trial.number, loss=0.1 * trial.number)
    advanced(study)
    return [each for each in study.trials() if each.parameters is None]


def test_they_are_drawn_as_one_after_the_other(study, monkeypatch):
    monkeypatch.setattr(drawing, "DRAW_FOR_S", 60.0)
    assert len(waiting(study, 6, **BY_MODEL)) == 6
    together, more = drawing.draw_next(study.row.pk, timezone.now())
    assert len(together) == 6 and not more
    # The first is late already: each has a transaction of its own.
    monkeypatch.setattr(drawing, "DRAW_FOR_S", -1.0)
    waiting(study, 6, **BY_MODEL)
    one_by_one = [drawing.draw_next(study.row.pk, timezone.now()) for _ in range(6)]
    assert [(len(drawn), more) for drawn, more in one_by_one] == [(1, True)] * 5 + [(1, False)]
    assert [each.parameters for [each], _ in one_by_one] == [each.parameters for each in together]
    assert all(not each.job.undrawn and each.parameters for each in study.trials())


def test_a_process_that_dies_while_it_writes_leaves_no_job_without_parameters(study, monkeypatch):
    """Such a job would be sent to its host, and its trial would never know what it tried."""

    def die(**_):
        raise KeyboardInterrupt

    [trial] = waiting(study, 1)
    with monkeypatch.context() as patch:
        patch.setattr(drawing, "_trial", die)
        with pytest.raises(KeyboardInterrupt):
            drawing.draw_next(study.row.pk, timezone.now())
    trial.job.refresh_from_db()
    assert trial.job.undrawn
    [drawn], _ = drawing.draw_next(study.row.pk, timezone.now())
    trial.refresh_from_db()
    assert trial.parameters == drawn.parameters is not None


def test_each_takes_the_same_few_queries(study, monkeypatch):
    monkeypatch.setattr(drawing, "DRAW_FOR_S", 60.0)
    counts = []
    for parallel in (2, 6):
        waiting(study, parallel)
        with CaptureQueriesContext(connection) as queries:
            assert len(drawing.draw_next(study.row.pk, timezone.now())[0]) == parallel
        counts.append(len(queries))
    assert counts[1] - counts[0] == 2 * 4, "two writes for each, and no read"


def test_those_behind_one_that_was_cancelled_meanwhile_are_drawn_again(study, monkeypatch):
    """They were drawn as if it ran where it now never will."""
    trials = waiting(study, 4)
    suggest, calls = searches.suggest, itertools.count(1)

    def cancelling(*rows):
        if next(calls) == 2:
            services.cancel(Job.objects.get(pk=trials[1].job_id), "alice", timezone.now())
        return suggest(*rows)

    monkeypatch.setattr(searches, "suggest", cancelling)
    drawn, more = drawing.draw_next(study.row.pk, timezone.now())
    assert ([each.number for each in drawn], more) == ([trials[0].number], True)
    drawn, more = drawing.draw_next(study.row.pk, timezone.now())
    assert ([each.number for each in drawn], more) == ([each.number for each in trials[2:]], False)
    assert study.trials()[trials[1].number - 1].parameters is None


def test_a_look_hands_on_the_trials_that_were_over_and_what_ended_since_is_read(study, monkeypatch):
    """They are most of the trials of a long study."""
    trials = waiting(study, 3)
    known = snapshot.trials_of(study.row)
    over = {each.number for each in known if each.ended_at}
    drawing.draw_next(study.row.pk, timezone.now(), known)
    study.run()
    study.end(trials[0].number, loss=0.01)
    advanced(study)
    read, build = [], snapshot._OVER.build
    monkeypatch.setattr(snapshot._OVER, "build", lambda row: read.append(build(row)) or read[-1])
    [again, anew] = (snapshot.trials_of(study.row, rows) for rows in (known, ()))
    assert [each.number for each in read] == [trials[0].number, *sorted({*over, trials[0].number})]
    seen = [
        [(each.number, each.state, each.final, each.parameters) for each in rows] for rows in (again, anew)
    ]
    assert seen[0] == seen[1] and len(over) == 3


def test_a_study_draws_with_what_has_ended_by_then(study, monkeypatch):
    """The place is found before the last trial has told its result, and its parameters are drawn after that."""
    trials = waiting(study, 2)
    suggest, seen = searches.suggest, []
    monkeypatch.setattr(
        searches,
        "suggest",
        lambda study, rows, *more: seen.append(len(rows.ended)) or suggest(study, rows, *more),
    )
    drawing.draw_next(study.row.pk, timezone.now())
    study.run()
    study.end(trials[0].number, loss=0.01)
    advanced(study)
    study.end(trials[1].number, loss=0.02)
    seen.clear()
    advance.advance([study.row.pk], Clock())
    # Both of them: the one that waited, and the one that takes the place of the last.
    assert seen == [4, 4]
