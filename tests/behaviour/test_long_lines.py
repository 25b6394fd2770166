"""50 MB on one line: when the job is told to be over, its log is here to the last byte."""

from __future__ import annotations

import hashlib

from tests.behaviour.observed_job import ObservedJob

SIZE = 50_000_000
PRINTS = f"import sys; sys.stdout.write('x' * {SIZE} + '\\n')"


def test_S3_20_a_line_of_50_mb_is_complete_when_success_is_told(yard):
    observed = ObservedJob(yard, {"command": ["python3", "-c", PRINTS]})
    observed.over("SUCCEEDED")
    stored = yard.client.log(observed.id)
    assert len(stored) == SIZE + 1
    assert hashlib.sha256(stored).digest() == hashlib.sha256(b"x" * SIZE + b"\n").digest()
