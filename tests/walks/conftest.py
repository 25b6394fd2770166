"""One product with hosts, people and their jobs for all walks, and a browser for each of them."""

from __future__ import annotations

import os

import pytest

from tests.flows.conftest import pytest_runtest_setup, pytest_runtest_teardown
from tests.harness.browser import headless_chromium
from tests.harness.hosts import Fleet
from tests.harness.product import Product
from tests.harness.product.product import PASSWORD
from tests.walks.hanging_job import HangingJob
from tests.walks.look import COMBINATIONS, How, Walk

ALL = "all"
__all__ = ["pytest_runtest_setup", "pytest_runtest_teardown"]


def pytest_generate_tests(metafunc):
    """In `make test-slow` each person walks once, each in another combination; in `make walks` in all of them, or in
    those that WALKS names."""
    if "how" in metafunc.fixturenames:
        [mark] = metafunc.definition.iter_markers("walk")
        asked = os.environ.get("WALKS", "")
        chosen = [How.named(name) for name in asked.split()] if asked != ALL else COMBINATIONS
        chosen = chosen or [COMBINATIONS[mark.args[0] % len(COMBINATIONS)]]
        metafunc.parametrize("how", chosen, ids=lambda how: how.name)


@pytest.fixture(scope="package")
def chromium():
    with headless_chromium() as browser:
        yield browser


@pytest.fixture(scope="package")
def yard():
    with Fleet(2) as fleet, Product() as product:
        product.with_admin().with_hosts(fleet)
        add = [("user", "add", name, "--password-stdin") for name in ("bob", "vera")]
        product.commands(*add, stdin=f"{PASSWORD}\n" * 2)
        for name, role in (("bob", "submitter"), ("vera", "viewer")):
            address = f"{product.url}/api/v1/projects/default/members/{name}"
            product.client.call("PUT", address, json={"role": role})
        machine = {"cpus": 0.1, "memoryMb": 64}
        product.client.call("PUT", f"{product.url}/api/v1/machineTypes/tiny", json=machine)
        yield product
        print(product.tail())  # pytest shows it when something failed


@pytest.fixture(scope="package")
def hanging_job(yard):
    """It takes a minute until a replica counts as quiet, so the job hangs while others walk."""
    return HangingJob(yard)


@pytest.fixture
def walk(chromium, yard, how, request):
    """A person with a browser of this kind: `walk.begin("bob")`."""
    walk = Walk(chromium, yard, how, request.node.originalname.removeprefix("test_"))
    yield walk
    walk.end()
    walk.judged()
