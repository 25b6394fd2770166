"""Trees and Python environments of the cache, as preparations."""

from __future__ import annotations

import os
from typing import Any, Dict

from agents.runner.cache.work import prepare_entry
from agents.runner.home import Home
from agents.runner.preparations.long_programs import Unprepared, tail_of
from agents.runner.preparations.report import HOST, USER, Failed, Report


def prepare_tree(what: Dict[str, Any], report: Report, home: Home) -> Dict[str, Any]:
    return _prepare("tree", what, report, home)


def prepare_environment(what: Dict[str, Any], report: Report, home: Home) -> Dict[str, Any]:
    return _prepare("environment", what, report, home)


def _prepare(kind: str, what: Dict[str, Any], report: Report, home: Home) -> Dict[str, Any]:
    """`what` has the `key` of the entry, and what `prepare_entry` reads. The end of what pip and git print is
    reported."""
    output = os.path.join(report.directory, "output")
    with open(output, "wb"):
        pass

    def progress(done: int, total: int, unit: str) -> None:
        report.document["tail"] = tail_of(output)
        report.progress(done, total or None, unit)

    try:
        return prepare_entry(home, kind, what["key"], what, output, progress)
    except Unprepared as error:
        raise Failed(USER if error.whose == "user" else HOST, str(error)) from None
    finally:
        report.document["tail"] = tail_of(output)
