"""A pytest plugin of tools/run-tests: which tests failed, and what was printed for each, as JSON in a file.

It also lists a test that crashed its process and that xdist has retried. Logs of tests that passed are written only
where few tests ran, as in a second try.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

FEW_TESTS = 300


def pytest_terminal_summary(terminalreporter):
    told = os.environ.get("TRAINYARD_TEST_REPORT")
    if not told:
        return
    stats = terminalreporter.stats
    failed = [*stats.get("failed", ()), *stats.get("error", ())]
    passed = stats.get("passed", ())
    logs: dict[str, str] = {}
    for report in (*failed, *(passed if len(passed) <= FEW_TESTS else ())):
        logs[report.nodeid] = logs.get(report.nodeid, "") + log_of(report)
    names = sorted({report.nodeid for report in failed})
    Path(told).write_text(json.dumps({"failed": names, "logs": logs}))


def log_of(report) -> str:
    parts = [report.longreprtext] if report.longreprtext else []
    parts += [f"-- {title} --\n{text}" for title, text in report.sections]
    return "".join(f"{part.rstrip()}\n" for part in parts)
