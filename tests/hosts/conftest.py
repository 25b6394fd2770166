"""Tests of the harness's hosts and of what runs on them."""

from __future__ import annotations

import pytest

from tests.harness.fixtures import enter_network_of_hosts, fleet, host, leave_private_network

__all__ = ["fleet", "host"]


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "needs_namespaces: fails, and says why, where hosts cannot have their own network"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    enter_network_of_hosts(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    try:
        return (yield)
    finally:
        leave_private_network()
