"""The whole product on real hosts: with everything embedded, and with PostgreSQL, Redis and processes apart."""

from __future__ import annotations

import os

import pytest

from tests.flows.stage import THE_STAGE
from tests.harness.fixtures import enter_network_of_hosts, leave_private_network

# A flow waits for conditions, each with its own deadline; this one is for a harness that hangs.
TIMEOUT_S = 1200
FAILED = pytest.StashKey[bool]()

# What `make soak` runs.
collect_ignore = [] if os.environ.get("SOAK_S") else ["test_soak.py"]


def pytest_collection_modifyitems(items):
    for item in items:
        here = item.path.is_relative_to(item.config.rootpath / "tests" / "flows")
        if here and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    enter_network_of_hosts(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    try:
        return (yield)
    finally:
        leave_private_network()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A failure is told together with what the product said."""
    report = yield
    if report.failed:
        item.stash[FAILED] = True
        stage = getattr(item, "funcargs", {}).get("stage")
        if stage and stage.product:
            report.sections.append(("the product's last words", stage.product.tail()))
    return report


@pytest.fixture(scope="session")
def stage():
    yield THE_STAGE
    THE_STAGE.clear()


@pytest.fixture(scope="module")
def shape():
    """Files that want both parametrize it: one product after the other, not to and fro."""
    return "embedded"


@pytest.fixture
def yard(stage, shape, request):
    """The product with its hosts, all links up. After a failure the next test gets a new one."""
    yield stage.product_of(shape)
    if request.node.stash.get(FAILED, False):
        stage.clear()


@pytest.fixture
def client(yard):
    return yard.client


@pytest.fixture
def hosts(yard):
    return yard.fleet.hosts
