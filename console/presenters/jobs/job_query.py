"""What the address of a job's page asks for. All state of its tabs stands in it, so that each view has a link."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from django.utils.http import urlencode

from console.presenters.jobs.job_filters import cursor_number
from jobs.rules.lifecycle.history_kinds import HistoryKind

LONGEST = 80
TABLE, CELLS = "table", "cells"


@dataclass(frozen=True, slots=True)
class JobQuery:
    """A value that does not exist counts as none.

    `replica`: whose log, charts, shells and events are shown. `state`, `pool` and `text`: which replicas are shown, in
    the order `sort`, as `view` says, from the number `start` on. `of`, `kind` and `attempt`: of which events; `open`:
    the group of events that is shown one by one. `span`: of which time the charts are. `also`: what else the address
    of the tab says.
    """

    replica: str = ""
    state: str = ""
    pool: str = ""
    text: str = ""
    sort: str = ""
    view: str = ""
    start: str = ""
    of: str = ""
    kind: str = ""
    attempt: str = ""
    open: str = ""
    span: str = ""
    also: tuple[tuple[str, str], ...] = ()

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> JobQuery:
        given: dict[str, Any] = {name: query.get(name, "")[:LONGEST] for name in _NAMES}
        # The names that addresses had before the page had tabs.
        given["replica"] = given["replica"] or (query.get("log") or query.get("use") or "")[:LONGEST]
        if given["kind"] not in HistoryKind.__members__.values():
            given["kind"] = ""
        for name in ("start", "attempt", "open"):
            if cursor_number(given[name]) is None:
                given[name] = ""
        return cls(**given)

    @property
    def query(self) -> str:
        """The query of an address that asks for the same."""
        return self.query_with()

    def query_with(self, **changes: str) -> str:
        """Return the query of an address that asks for the same, with some changes."""
        pairs = {**dict(self.also), **{name: getattr(self, name) for name in _NAMES}, **changes}
        if "replica" in changes:
            # Another one is chosen than those.
            pairs.pop("replicas", None)
        return urlencode({name: value for name, value in pairs.items() if value})


_NAMES = tuple(field.name for field in fields(JobQuery) if field.name != "also")
