"""The rows of the service's documents, through the whole product: each file plays its scenes once, its tests look."""

from __future__ import annotations

import os

import pytest

from tests.flows.conftest import pytest_runtest_setup, pytest_runtest_teardown
from tests.flows.stage import THE_STAGE

# A scene waits for conditions, each with its own deadline; this one is for a harness that hangs.
TIMEOUT_S = 1200
TROUBLED = set()

# What `make programs` runs.
collect_ignore = [] if os.environ.get("PROGRAMS") else ["test_frameworks.py"]

__all__ = ["pytest_runtest_setup", "pytest_runtest_teardown"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        here = item.path.is_relative_to(item.config.rootpath / "tests" / "behaviour")
        if here and "yard" in item.fixturenames:
            # Replicas of one job listen at the same port of several hosts, which are one machine on loopback ports.
            item.add_marker(pytest.mark.needs_namespaces)
        if here and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A failure is told together with what the product said."""
    report = yield
    if report.failed:
        TROUBLED.add(item.path)
        if THE_STAGE.product:
            report.sections.append(("the product's last words", THE_STAGE.product.tail()))
    return report


@pytest.fixture(scope="session")
def stage():
    yield THE_STAGE
    THE_STAGE.clear()


@pytest.fixture(scope="module")
def yard(stage, request):
    """The product with three hosts. When all scenes of a file are played, the invariants hold."""
    product = stage.product_of("embedded")
    yield product
    try:
        if request.path not in TROUBLED:
            product.check()
            return
    except BaseException:
        stage.clear()  # the next file's scenes are judged without this one's
        raise
    stage.clear()


@pytest.fixture(scope="module")
def client(yard):
    return yard.client
