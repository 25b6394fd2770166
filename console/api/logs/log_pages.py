"""Reads the lines of all logs of a job a page at a time, backwards or onwards: what the view of all replicas shows
further up and further down.

`GET /api/v1/jobs/<id>/log/earlier?until=[&pageToken=&replicas=&runs=all]` has lines that were printed up to this second
since 1970, the newest first: `[run, offset at which the line ends, second, text]`, and a fifth element if the text says
what is missing. `…/log/later?since=` has those that were printed from this second on, the oldest first. The text has
the controls that the program wrote, as those of a progress bar: each line alone does not say how its row ends up.

To continue, repeat the request with the `nextPageToken`, until there is none. A request reads for half a second at
most, so a page may be empty.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, NotRequired, TypedDict

from rest_framework.request import Request
from rest_framework.response import Response

from console.api.description import Query, described, form
from console.api.errors import BadRequest
from console.api.logs.entry_filter import NEVER
from console.api.logs.log_archive import WHICH_LOGS, chosen_runs
from console.api.logs.merged_logs import SECOND, BadToken, Found, MergedLogs, Place, read_token, write_token
from console.api.views import TrainyardView
from console.auth import access
from console.live.merged_parts import as_written
from jobs.logs.search_budget import SearchBudget
from jobs.models import Job

PAGE_SIZE = 500
MAX_PAGE_BYTES = 512 * 1024
EARLIER, LATER = "earlier", "later"


class LinesByTime(TypedDict):
    """Each line: run, offset at which it ends, second, text; and true, where the text says what is missing."""

    lines: list[list[Any]]
    nextPageToken: NotRequired[str]


_SECOND = Annotated[str, form(pattern=r"^[0-9]{1,10}(\.[0-9]{1,6})?$")]
_REST = (Query("pageToken", "The `nextPageToken` of the page before."), *WHICH_LOGS)
UNTIL = Query("until", "Lines that were printed up to this second since 1970.", _SECOND, required=True)
SINCE = Query("since", "Lines that were printed from this second since 1970 on.", _SECOND, required=True)


class EarlierView(TrainyardView):
    """Lines of all logs, the newest first."""

    @described(
        "List the lines of all logs, the newest first", LinesByTime, needs="see_log", query=(UNTIL, *_REST)
    )
    def get(self, request: Request, job_id: str) -> Response:
        return _answer(request, int(job_id), "until", EARLIER)


class LaterView(TrainyardView):
    """Lines of all logs, the oldest first."""

    @described(
        "List the lines of all logs, the oldest first", LinesByTime, needs="see_log", query=(SINCE, *_REST)
    )
    def get(self, request: Request, job_id: str) -> Response:
        return _answer(request, int(job_id), "since", LATER)


def _answer(request: Request, job_id: int, border: str, order: str) -> Response:
    job = access.get_or_404(request.user, "see_log", Job.objects.select_related("project"), pk=job_id)
    asked = request.query_params
    text = asked.get(border, "")
    if not re.fullmatch(r"\d{1,10}(\.\d{1,6})?", text):
        raise BadRequest(border, f"{border} must be a time in seconds since 1970.")
    at, newest = round(float(text) * SECOND), order == EARLIER
    low, high = (0, at) if newest else (at, NEVER)
    runs, places = chosen_runs(job, asked), _places(asked.get("pageToken", ""), order)
    with SearchBudget(request.user.pk, (job.pk, order)) as budget:
        logs = MergedLogs(runs, low, high, newest, places)
        lines = _page(logs, budget, low)
    more = {} if logs.over() else {"nextPageToken": write_token(order, logs.places())}
    return Response({"lines": lines, **more})


def _page(logs: MergedLogs, budget: SearchBudget, low: int) -> list[list[Any]]:
    lines: list[list[Any]] = []
    size, stop = 0, False
    while not logs.over() and not stop:
        found = logs.step()
        # Reading begins a little before the border.
        if found is not None and found.at >= low:
            lines.append(_line(found))
            size += len(lines[-1][3])
        stop = len(lines) == PAGE_SIZE or size > MAX_PAGE_BYTES or budget.spent()
    return lines


def _line(found: Found) -> list[Any]:
    at, entry = round(found.at / SECOND, 3), found.entry
    if entry.missing:
        return [found.run.pk, entry.end, at, entry.missing, True]
    return [found.run.pk, entry.end, at, as_written(entry.data + b"\n")]


def _places(token: str, order: str) -> dict[str, Place]:
    try:
        return read_token(token, order)
    except BadToken as problem:
        raise BadRequest("pageToken", "The page token is none of an earlier answer.") from problem
