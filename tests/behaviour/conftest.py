"""Each statement of the service's documents, through the whole product.

A file runs its jobs once, as fixtures; its tests look at what came of them.
"""

from __future__ import annotations

import os

import pytest

from tests.flows.conftest import pytest_runtest_setup, pytest_runtest_teardown
from tests.flows.shared_product import THE_STAGE

# A fixture waits for conditions, each with its own deadline. This limit is for a harness that hangs.
TIMEOUT_S = 1200
TROUBLED = set()

# Only `make programs` runs it.
collect_ignore = (
    [] if os.environ.get("PROGRAMS") else ["test_frameworks.py", "test_frameworks_in_containers.py"]
)

__all__ = ["pytest_runtest_setup", "pytest_runtest_teardown"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        here = item.path.is_relative_to(item.config.rootpath / "tests" / "behaviour")
        if here and "yard" in item.fixturenames:
            # Replicas of one job listen at one port of several hosts; hosts on loopback ports are one machine.
            item.add_marker(pytest.mark.needs_namespaces)
        if here and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Add the last output of the product to the report of a failure."""
    report = yield
    if report.failed:
        TROUBLED.add(item.path)
        if THE_STAGE.product:
            report.sections.append(("the last output of the product", THE_STAGE.product.tail()))
    return report


@pytest.fixture(scope="session")
def shared_product():
    yield THE_STAGE
    THE_STAGE.clear()


@pytest.fixture(scope="module")
def yard(shared_product, request):
    """The product with three hosts. When all jobs of a file are over, the invariants are checked."""
    product = shared_product.product_of("embedded")
    yield product
    try:
        if request.path not in TROUBLED:
            product.check()
            return
    except BaseException:
        shared_product.clear()  # the next file is judged without the jobs of this one
        raise
    shared_product.clear()


@pytest.fixture(scope="module")
def client(yard):
    return yard.client
