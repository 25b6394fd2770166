"""The filter of `entries:list` in the language of Cloud Logging, as gcloud and client libraries send it.

resource.type="ml_job" AND resource.labels.job_id="7" AND resource.labels.task_name="workerpool0-0"
AND timestamp>="2026-11-22T10:00:00Z" AND severity>=WARNING AND textPayload:"loss"
"""

from __future__ import annotations

import operator as operators
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from console.api.errors import BadRequest
from console.api.jobs.filters import MAX_LENGTH, FilterReader

Document = dict[str, Any]
Names = frozenset[str] | None
SEVERITIES = ("DEFAULT", "DEBUG", "INFO", "NOTICE", "WARNING", "ERROR", "CRITICAL", "ALERT", "EMERGENCY")
ALWAYS, NEVER = -(10**18), 10**18
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operators.eq,
    "!=": operators.ne,
    "<": operators.lt,
    "<=": operators.le,
    ">": operators.gt,
    ">=": operators.ge,
}
_TEXTS = {
    "resource.type": lambda entry: entry["resource"]["type"],
    "resource.labels.job_id": lambda entry: entry["resource"]["labels"]["job_id"],
    "resource.labels.task_name": lambda entry: entry["resource"]["labels"]["task_name"],
    "resource.labels.project_id": lambda entry: entry["resource"]["labels"]["project_id"],
    "insertId": lambda entry: entry["insertId"],
    "logName": lambda entry: entry["logName"],
    "textPayload": lambda entry: entry["textPayload"],
}
KNOWN = ", ".join((*_TEXTS, "timestamp", "severity"))


@dataclass(frozen=True, slots=True)
class EntryCondition:
    """Which entries are meant. The rest is only for reading less: no entry outside it is meant.

    `low`, `high`: times, in microseconds since 1970. `jobs`, `tasks`: ids of jobs and names of replicas; None for all.
    """

    holds: Callable[[Document], bool]
    low: int = ALWAYS
    high: int = NEVER
    jobs: Names = None
    tasks: Names = None

    def __and__(self, other: EntryCondition) -> EntryCondition:
        return EntryCondition(
            lambda entry: self.holds(entry) and other.holds(entry),
            max(self.low, other.low),
            min(self.high, other.high),
            _both(self.jobs, other.jobs),
            _both(self.tasks, other.tasks),
        )

    def __or__(self, other: EntryCondition) -> EntryCondition:
        return EntryCondition(
            lambda entry: self.holds(entry) or other.holds(entry),
            min(self.low, other.low),
            max(self.high, other.high),
            _either(self.jobs, other.jobs),
            _either(self.tasks, other.tasks),
        )

    def __invert__(self) -> EntryCondition:
        return EntryCondition(lambda entry: not self.holds(entry))


def parse(text: str) -> EntryCondition:
    """Raises BadRequest, which names the position of the first mistake or the field that is not known."""
    if len(text) > MAX_LENGTH:
        raise BadRequest(
            "filter", f"The filter has {len(text)} characters; at most {MAX_LENGTH} are possible."
        )
    if not text.strip():
        return EntryCondition(lambda entry: True)
    return _EntryFilter(text).whole()


class _EntryFilter(FilterReader[EntryCondition]):
    def meaning(self, field: str, operator: str, value: str) -> EntryCondition:
        if field == "timestamp":
            return _time(operator, micros(value))
        if field == "severity":
            return _severity(operator, value)
        found = _TEXTS.get(field)
        if found is None:
            raise BadRequest("filter", f"Cannot filter by {field!r}. Known are {KNOWN}.")
        if operator == ":":
            return EntryCondition(lambda entry: value.lower() in found(entry).lower())
        compare = _COMPARE[operator]
        names = frozenset({value}) if operator == "=" else None
        return EntryCondition(
            lambda entry: compare(found(entry), value),
            jobs=names if field == "resource.labels.job_id" else None,
            tasks=names if field == "resource.labels.task_name" else None,
        )


def micros(text: str) -> int:
    """A time in RFC 3339, which may have nanoseconds, in microseconds since 1970."""
    try:
        when = datetime.fromisoformat(text)
        when = when if when.tzinfo else when.replace(tzinfo=UTC)
        return round((when - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1_000_000)
    except (ValueError, OverflowError):
        raise BadRequest(
            "filter", f"timestamp must be a time such as 2026-11-22T10:00:00Z, not {text!r}."
        ) from None


def _time(operator: str, value: int) -> EntryCondition:
    if operator not in _COMPARE:
        raise BadRequest("filter", "timestamp can be compared with =, !=, <, <=, > and >= only.")
    compare = _COMPARE[operator]
    return EntryCondition(
        lambda entry: compare(micros(entry["timestamp"]), value),
        low=value if operator in ("=", ">", ">=") else ALWAYS,
        high=value if operator in ("=", "<", "<=") else NEVER,
    )


def _severity(operator: str, value: str) -> EntryCondition:
    if operator not in _COMPARE or value.upper() not in SEVERITIES:
        raise BadRequest(
            "filter", f"severity is compared by =, <, > ... with one of {', '.join(SEVERITIES)}."
        )
    compare, level = _COMPARE[operator], SEVERITIES.index(value.upper())
    return EntryCondition(lambda entry: compare(SEVERITIES.index(entry["severity"]), level))


def _both(one: Names, other: Names) -> Names:
    if one is None or other is None:
        return one if other is None else other
    return one & other


def _either(one: Names, other: Names) -> Names:
    return None if one is None or other is None else one | other
