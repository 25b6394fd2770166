"""What every test may rely on, and in which order they come."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

# Files of these wait for whole products. Begun first, they overlap with the quick ones instead of following them: the
# longest before all others, and first those with everything apart, so that what one file has started the next one uses.
LONG = (
    "tests/flows/test_crash_points.py",
    "tests/flows/test_campaign.py",
    "tests/flows/test_crash_points_on_hosts.py",
    "tests/flows/test_services_die.py",
    "tests/flows/test_walks.py",
    "tests/flows/",
    "tests/behaviour/",
    "tests/browser/test_first_run.py",
    "tests/unit/console/runtime/test_up.py",
    "tests/unit/agents/runner/",
    "tests/unit/agents/",
    "tests/browser/",
    "tests/unit/console/runtime/",
)


def pytest_configure():
    """A shell that starts tests in the background has them, and all that they start, ignore what a terminal sends."""
    for name in (signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(name) is signal.SIG_IGN:
            signal.signal(name, signal.SIG_DFL)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    items.sort(key=place)


def place(item):
    return next((place for place, start in enumerate(LONG) if item.nodeid.startswith(start)), len(LONG))


def pytest_unconfigure():
    """Hints say their last words while the stream that logs go to is still open: here no broker may hear them.

    Looked up, not imported: the runner's tests also run where there is no Django.
    """
    if hints := sys.modules.get("jobs.wake.hints"):
        hints._messages.finish()


def pytest_terminal_summary(terminalreporter):
    """For tools/run-tests: all that failed. Who took its process along is among them, although xdist tries it again."""
    if told := os.environ.get("TRAINYARD_FAILED_TESTS"):
        stats = terminalreporter.stats
        failed = {report.nodeid for report in (*stats.get("failed", ()), *stats.get("error", ()))}
        Path(told).write_text(json.dumps(sorted(failed)))
