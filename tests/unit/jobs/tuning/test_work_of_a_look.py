"""What an ordinary look of a study costs: a trial has ended, and the next one is asked for, placed and drawn."""

from __future__ import annotations

import math

import pytest
from django.db.models.sql.compiler import SQLCompiler

from agents.infra.clock import Clock
from jobs.scheduling import host_shapes
from jobs.tuning import advance, snapshot
from tests.unit.jobs.tuning.conftest import asked

pytestmark = pytest.mark.django_db


@pytest.fixture
def look(study):
    """look(number): this trial ends, and its study is looked at."""
    document = asked(maxTrialCount=9)
    del document["trialJobSpec"]["baseOutputDirectory"]
    study.submit(document).run()

    def look(number):
        study.end(number, loss=0.5)
        advance.advance([study.row.pk], Clock())

    look(1)  # statements are compiled when they first run
    study.run()
    return look


def test_an_ordinary_look_compiles_no_query(study, look, monkeypatch):
    """To compile one takes several times as long as to run it."""
    compiled = []
    as_sql, look_at = SQLCompiler.as_sql, advance.advance

    def noted(compiler, *args, **named):
        sql = as_sql(compiler, *args, **named)
        compiled.append(sql[0])
        return sql

    def looked_at(*args):
        compiled.clear()
        look_at(*args)

    monkeypatch.setattr(SQLCompiler, "as_sql", noted)
    monkeypatch.setattr(advance, "advance", looked_at)
    # On a slow machine the answer of the first look would be too old for the second.
    monkeypatch.setattr(host_shapes._recent, "_kept_s", math.inf)
    look(2)
    monkeypatch.undo()
    assert study.trials()[3].parameters
    assert compiled == []


def test_the_spec_of_a_study_is_read_once(study, look, monkeypatch):
    """It never changes, and each look asks for it twice."""
    read = []
    parse_study = snapshot.parse_study
    monkeypatch.setattr(snapshot, "parse_study", lambda document: read.append(True) or parse_study(document))
    look(2)
    assert study.trials()[3].parameters and read == []
    kept = snapshot.study_of(study.row)
    study.row.study["metrics"][0]["goal"] = "MAXIMIZE"
    assert snapshot.study_of(study.row) != kept and read == [True]
