"""Processes compute with arrays in one thread."""

from __future__ import annotations

import os
import subprocess
import sys

THREADS = """
import os, console.settings
before = len(os.listdir("/proc/self/task"))
import numpy
numpy.ones((700, 700)) @ numpy.ones((700, 700))
print(len(os.listdir("/proc/self/task")) - before, os.environ["OPENBLAS_NUM_THREADS"])
"""


def test_numpy_starts_no_threads(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    environment["TRAINYARD_DATA"] = str(tmp_path / "data")
    done = subprocess.run([sys.executable, "-c", THREADS], env=environment, capture_output=True, text=True)
    assert done.stdout.split() == ["0", "1"], done.stderr
