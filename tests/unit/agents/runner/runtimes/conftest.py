"""The engine of a module of tests, and a runner that uses it. Modules for one engine have an `engine` of their own."""

from __future__ import annotations

import pytest

from tests.harness.containers import ENGINES
from tests.unit.agents.runner.protocol_client import wait_for
from tests.unit.agents.runner.runtimes.container_runs import connect


@pytest.fixture(scope="module", params=[pytest.param("docker", marks=pytest.mark.slow), "podman"])
def engine(request, tmp_path_factory):
    engine = ENGINES[request.param](tmp_path_factory.mktemp(request.param))
    engine.make_image()
    yield engine
    engine.remove()


@pytest.fixture
def console(host, engine):
    yield connect(host, engine)
    wait_for(lambda: not engine.containers(), "no container to be left")
