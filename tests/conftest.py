"""What every test may rely on, and in which order they come."""

from __future__ import annotations

import pytest

# Files of these wait for whole products. Begun first, they overlap with the quick ones instead of following them.
LONG = ("tests/flows/", "tests/behaviour/", "tests/browser/", "tests/runner/", "tests/console_infra/")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    items.sort(key=place)


def place(item):
    return next((place for place, start in enumerate(LONG) if item.nodeid.startswith(start)), len(LONG))
