"""Tests of the harness's hosts and of what runs on them."""

from __future__ import annotations

import os

import pytest

from tests.harness.fixtures import enter_network_of_hosts, fleet, host, leave_private_network

__all__ = ["fleet", "host"]

# Only `make runner-pythons` runs it.
collect_ignore = [] if os.environ.get("RUNNER_PYTHON") else ["test_old_python.py"]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    enter_network_of_hosts(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    try:
        return (yield)
    finally:
        leave_private_network()
