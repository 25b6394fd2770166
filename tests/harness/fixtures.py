"""Fixtures for tests that need hosts. A conftest imports them: `from tests.harness.fixtures import fleet, host`."""

from __future__ import annotations

import pytest

from tests.harness.hosts import Fleet, NeedsNamespaces, leave_private_network, private_network
from tests.harness.hosts.network import namespaces_work

FLEET_SIZE = 3


@pytest.fixture(scope="session")
def fleet():
    """Three hosts with 8 GPUs each, for the whole session of this worker. Tests leave them as they found them."""
    with Fleet(FLEET_SIZE) as hosts:
        yield hosts


@pytest.fixture
def host(fleet):
    return fleet[0]


def enter_network_of_hosts(item):
    """Enter the network of the hosts, for this test, its fixtures and what it starts (from pytest_runtest_setup).

    Other tests of this process keep the machine's own network: pytest_runtest_teardown goes back to it.
    """
    if namespaces_work():
        private_network()
    elif item.get_closest_marker("needs_namespaces"):
        raise NeedsNamespaces(item.name)


__all__ = ["enter_network_of_hosts", "fleet", "host", "leave_private_network"]
