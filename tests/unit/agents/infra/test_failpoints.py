"""The trace of the points that processes come by."""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = """
import os
from agents.infra.failpoints import trace
trace("before")
os.closerange(3, 100)
trace("after")
"""


def test_a_process_that_has_closed_what_was_open_goes_on_with_the_trace(tmp_path):
    """As each fork of `trainyard up` does."""
    path = tmp_path / "trace"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env={**os.environ, "TRAINYARD_TRACE": str(path)}, check=False
    )
    assert done.returncode == 0
    assert [line.split()[2] for line in path.read_text().splitlines()] == ["before", "after"]
