#!/usr/bin/env python3
"""A Python whose reducer ends with an exit status of 0 when it is told to, in the middle of everything."""

from __future__ import annotations

import os
import subprocess
import sys
import time

PYTHON = "/usr/bin/python3"

if __name__ == "__main__":
    if sys.argv[1] != "-m":
        os.execv(PYTHON, [PYTHON, *sys.argv[1:]])
    told = f"/tmp/end-{os.environ['TRAINYARD_RUN']}"  # noqa: S108
    reducer = subprocess.Popen([PYTHON, *sys.argv[1:]])
    while reducer.poll() is None and not os.path.exists(told):
        time.sleep(0.1)
    reducer.kill()
