"""Has the Python of a reducer numpy? What is missing is an error of the job, before anything of it has begun.

It is asked when a host prepares for the run (preparations/reducer_python.py), and here once more, right before the
reducer: a host may have lost it since.
"""

from __future__ import annotations

from typing import Dict

from agents.runner.programs import output_of
from agents.runner.runs.orders import Refused

# Python on a cold network disk takes its time.
TIMEOUT_S = 120.0
QUESTION = ("-c", "import numpy")
CURE = (
    "the reducer needs numpy, and %s of %s cannot import it (%s). Install numpy for it, or name another "
    'Python as the command of workerpool2: "containerSpec": {"command": ["/path/to/python3"]}'
)


def check_numpy(python: str, env: Dict[str, str]) -> None:
    """Raises Refused. `env`: that of the reducer."""
    status, text = output_of([python, *QUESTION], TIMEOUT_S, env)
    if status != 0:
        raise Refused("exec_failed", without_numpy(python, status, text))


def without_numpy(python: str, status: int, text: str, place: str = "") -> str:
    """What to say of a Python that could not import it. `text`: what it printed."""
    said = text.strip().splitlines()
    why = said[-1][:300] if said else "status %d" % status
    return CURE % (python, place or "this host", why)
