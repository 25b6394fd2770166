"""A plugin of pytest: no test begins after TESTS_UNTIL (of the machine's clock that runs on), and the files come in the
order in which they were named. The end says how many tests were not come to."""

from __future__ import annotations

import os
import time
from pathlib import PurePath

import pytest

UNTIL = float(os.environ["TESTS_UNTIL"])
COUNTED = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    places = {name: place for place, name in enumerate(config.args)}

    def place(item):
        """Where the command names its file, or the folder of that."""
        file = item.nodeid.split("::")[0]
        return places.get(file, places.get(str(PurePath(file).parent), len(places)))

    items.sort(key=place)
    config.collected = len(items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item):
    """True: this test is done with, and nothing is told of it."""
    return True if time.monotonic() > UNTIL else None


def pytest_xdist_node_collection_finished(node, ids):
    node.config.collected = len(ids)


def pytest_terminal_summary(terminalreporter, config):
    ran = sum(len(terminalreporter.stats.get(kind, ())) for kind in COUNTED)
    left = getattr(config, "collected", ran) - ran
    if left > 0:
        terminalreporter.write_line(f"The time was over: {left} tests farther from the change did not run.")
