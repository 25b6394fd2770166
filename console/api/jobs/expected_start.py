"""The field `expectedStart` of a waiting job."""

from __future__ import annotations

from typing import Any

from console.api.times import format_time
from console.presenters.queue.expected_start import Expected


def expected_document(expected: Expected | None) -> dict[str, Any]:
    """Nothing, where the start is not known."""
    if expected is None:
        return {}
    times = {"from": format_time(expected.since), "until": format_time(expected.until)}
    return {"expectedStart": {**times, "basis": expected.basis}}
