"""The field `expectedStart` of a waiting job."""

from __future__ import annotations

from typing import Any, TypedDict

from console.api.description import Time
from console.api.times import format_time
from console.presenters.queue.expected_start import Expected

FromUntil = TypedDict("FromUntil", {"from": Time, "until": Time})


class ExpectedStart(FromUntil):
    """Between these times the job starts, as far as is known; `basis` says on what that stands (docs/scheduling.md)."""

    basis: str


def expected_document(expected: Expected | None) -> dict[str, Any]:
    """Nothing, where the start is not known."""
    if expected is None:
        return {}
    times = {"from": format_time(expected.since), "until": format_time(expected.until)}
    return {"expectedStart": {**times, "basis": expected.basis}}
