"""A bucket that cannot be sent. Runs in the system's Python, which has torch."""

from __future__ import annotations

import subprocess

from agents.runner.reduction.files_on_hosts import put_files
from tests.harness.reduction import PYTHON

START = """
import torch, types
from trainyard_reduction.exchange import Exchange
from trainyard_reduction.group import Plan

model = types.SimpleNamespace(stream=0, number=0, shadows=False, divides_by_all=True)
"""

CANNOT = """
exchange = Exchange(None, "a group that is none", 0, 0, Plan("a session", "", [0, 0]))
for _ in range(2):
    try:
        exchange.reduce(model, torch.ones(4)).wait()
    except Exception as problem:
        print("a bucket could not be sent" in str(problem))
"""


def output_of(tmp_path, program):
    done = subprocess.run(
        [PYTHON, "-c", START + program],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": put_files(str(tmp_path))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout.splitlines() or done.stderr


def test_a_bucket_that_cannot_be_sent_is_an_error_and_no_hang(tmp_path):
    assert output_of(tmp_path, CANNOT) == ["True", "True"]
