"""Metrics in the lines that programs print, in the forms of their frameworks."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.rules.metrics.log_lines import names_asked, values_in

NAMES = ("loss", "val_accuracy", "eval/f1", "acc")


@pytest.mark.parametrize(
    ("line", "values", "step"),
    [
        ('{"step": 3, "loss": 0.91, "other": 1}', {"loss": 0.91}, 3),
        ('{"global_step": 7, "eval/f1": "0.5", "loss": null}', {"eval/f1": 0.5}, 7),
        ("{'loss': 1.5, 'learning_rate': 5e-05, 'epoch': 0.25}", {"loss": 1.5}, None),
        ("{'loss': nan, 'epoch': 2.0}", {"loss": math.nan}, None),
        ("epoch=2.0 loss=1", {"loss": 1.0}, None),
        ('{"epoch": 2, "loss": 1}', {"loss": 1.0}, 2),
        ('{"step": 1000.0, "loss": 1}', {"loss": 1.0}, 1000),
        ('{"step": 0.5, "epoch": 2, "loss": 1}', {"loss": 1.0}, 2),
        ('{"step": 1e30, "loss": 1}', {"loss": 1.0}, None),
        ("{'loss': 0x" + "f" * 5000 + "}", {}, None),
        ("{'loss': 0.5, 'step': 0x" + "f" * 5000 + "}", {"loss": 0.5}, None),
        ("10/10 - 1s 90ms/step - loss: 0.1 - val_accuracy: 0.9", {"loss": 0.1, "val_accuracy": 0.9}, None),
        ("step=12 loss=3.5e-2 acc=.5", {"loss": 0.035, "acc": 0.5}, 12),
        ("loss=1 loss=2", {"loss": 2.0}, None),
        ("loss: inf", {"loss": math.inf}, None),
        ("final loss: 0.25.", {"loss": 0.25}, None),
        ("The loss: 0.25. Then acc: 1. Good.", {"loss": 0.25, "acc": 1.0}, None),
        ("the loss: unknown, train_loss=1, my.loss=2, loss=1.2.3, loss=0x10", {}, None),
        ("{'loss': __import__('os')}", {}, None),
        ("{" * 9000, {}, None),
        ("loss=1" + " " * 30_000, {}, None),
    ],
)
def test_the_forms_of_a_line(line, values, step):
    found, at = values_in(line, NAMES)
    assert repr(found) == repr(values) and at == step


def test_only_names_that_were_asked_for_count():
    assert values_in("loss=1", ()) == ({}, None)
    env = {"TRAINYARD_LOG_METRICS": " loss, val_accuracy,,loss, a\x00b "}
    assert names_asked(env) == ("loss", "val_accuracy", "a b")
    assert names_asked({}) == names_asked(None) == names_asked({"TRAINYARD_LOG_METRICS": 7}) == ()


@given(st.text(max_size=200))
def test_no_line_raises(line):
    values_in(line, NAMES)
    values_in("{" + line + "}", NAMES)
