"""The whole product on real hosts: embedded (SQLite, private Redis), and apart (PostgreSQL, Redis, more processes)."""

from __future__ import annotations

import os

import pytest

from tests.flows.shared_product import THE_STAGE
from tests.harness.fixtures import enter_network_of_hosts, leave_private_network

# A flow waits for conditions, each with its own deadline. This limit is for a harness that hangs.
TIMEOUT_S = 1200
FAILED = pytest.StashKey[bool]()

# Only `make soak` runs it.
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
def pytest_runtest_teardown(item, nextitem):
    """A product that stands idle beside the tests of other folders would use a tenth of a core, or two."""
    try:
        return (yield)
    finally:
        leave_private_network()
        if "shared_product" not in getattr(nextitem, "fixturenames", ()):
            THE_STAGE.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Add the last output of the product to the report of a failure."""
    report = yield
    if report.failed:
        item.stash[FAILED] = True
        shared_product = getattr(item, "funcargs", {}).get("shared_product")
        if shared_product and shared_product.product:
            report.sections.append(("the last output of the product", shared_product.product.tail()))
    return report


@pytest.fixture(scope="session")
def shared_product():
    yield THE_STAGE
    THE_STAGE.clear()


@pytest.fixture(scope="module")
def shape():
    """The shape of the product. Files that need both parametrize it, so that the products do not alternate."""
    return "embedded"


@pytest.fixture
def yard(shared_product, shape, request):
    """The product with its hosts, all links up. After a failure the next test gets a new product."""
    yield shared_product.product_of(shape)
    if request.node.stash.get(FAILED, False):
        shared_product.clear()


@pytest.fixture
def client(yard):
    return yard.client


@pytest.fixture
def hosts(yard):
    return yard.fleet.hosts
