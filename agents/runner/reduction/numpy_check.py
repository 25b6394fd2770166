"""Before a reducer starts: has its Python numpy? What is missing is an error of the job, before anything has begun."""

from __future__ import annotations

from typing import Dict

from agents.runner.programs import output_of
from agents.runner.runs.orders import Refused

# Python on a cold network disk takes its time.
TIMEOUT_S = 120.0
CURE = (
    "the reducer needs numpy, and %s of this host cannot import it (%s). Install numpy for it, or name another "
    'Python as the command of workerpool2: "containerSpec": {"command": ["/path/to/python3"]}'
)


def check_numpy(python: str, env: Dict[str, str]) -> None:
    """Raises Refused. `env`: that of the reducer."""
    status, text = output_of([python, "-c", "import numpy"], TIMEOUT_S, env)
    if status != 0:
        said = text.strip().splitlines()
        raise Refused("exec_failed", CURE % (python, said[-1][:300] if said else "status %d" % status))
