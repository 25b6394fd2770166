from __future__ import annotations

import pytest

from tests.harness.reduction import Reduced


@pytest.fixture
def reduced(tmp_path):
    """A function that starts trainers and reducers; none of them is left."""
    started = []

    def start(trainers, reducers, *command, env=None, wrapped=(), **options):
        group = Reduced(tmp_path, trainers, reducers, **options)
        started.append(group)
        return group.start_reducers().start_trainers(*command, env=env, wrapped=wrapped)

    yield start
    for group in started:
        group.close()
