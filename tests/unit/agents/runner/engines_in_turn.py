"""Every case of a long test without an engine and with one of the engines in turn; the others in `make exhaustive`.

`make test` runs over programs of the host and over podman, `make test-slow` over the other engines.
"""

from __future__ import annotations

import pytest

CONTAINER_ENGINES = ("podman", "docker", "apptainer")


def slow(kind):
    return [pytest.mark.slow] if kind in ("docker", "apptainer") else []


RUNTIMES = [pytest.param(kind, marks=slow(kind)) for kind in ("process", *CONTAINER_ENGINES)]


def engines_in_turn(names, cases):
    """Parametrizes a test over `cases`, which are values of `names`, and the runtime of its runs (`each_runtime`).

    What an engine does differently from the others has tests of its own (`test_docker.py` and the like).
    """
    found = []
    for number, case in enumerate(cases):
        in_turn = CONTAINER_ENGINES[number % len(CONTAINER_ENGINES)]
        for kind in ("process", *CONTAINER_ENGINES):
            further = [] if kind in ("process", in_turn) else [pytest.mark.exhaustive]
            found.append(pytest.param(kind, *case, marks=[*slow(kind), *further]))
    return pytest.mark.parametrize(("runtime_of_runs", *names), found, indirect=["runtime_of_runs"])
