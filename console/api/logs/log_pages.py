"""Reads the lines of all logs of a job backwards, a page at a time: what the view of all replicas shows further up.

`GET /api/v1/jobs/<id>/log/earlier?until=[&pageToken=&replicas=&runs=all]` has lines that were printed up to this second
since 1970, the newest first: `[run, offset at which the line ends, second, text]`, and a fifth element if the text says
what is missing. To continue, repeat the request with the `nextPageToken`, until there is none. A request reads for half
a second at most, so a page may be empty.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, NotRequired, TypedDict

from rest_framework.request import Request
from rest_framework.response import Response

from console.api.description import Query, described, form
from console.api.errors import BadRequest
from console.api.logs.log_archive import WHICH_LOGS, chosen_runs
from console.api.logs.merged_logs import SECOND, BadToken, Found, MergedLogs, Place, read_token, write_token
from console.api.views import TrainyardView
from console.auth import access
from jobs.logs.search_budget import SearchBudget
from jobs.models import Job

PAGE_SIZE = 500
MAX_PAGE_BYTES = 512 * 1024
ORDER = "earlier"


class EarlierLines(TypedDict):
    """Each line: run, offset at which it ends, second, text; and true, where the text says what is missing."""

    lines: list[list[Any]]
    nextPageToken: NotRequired[str]


ASKED = (
    Query(
        "until",
        "Lines that were printed up to this second since 1970.",
        Annotated[str, form(pattern=r"^[0-9]{1,10}(\.[0-9]{1,6})?$")],
        required=True,
    ),
    Query("pageToken", "The `nextPageToken` of the page before."),
    *WHICH_LOGS,
)


class EarlierView(TrainyardView):
    """Lines of all logs, the newest first."""

    @described("List the lines of all logs, the newest first", EarlierLines, needs="see_log", query=ASKED)
    def get(self, request: Request, job_id: str) -> Response:
        job = access.get_or_404(
            request.user, "see_log", Job.objects.select_related("project"), pk=int(job_id)
        )
        asked = request.query_params
        until = asked.get("until", "")
        if not re.fullmatch(r"\d{1,10}(\.\d{1,6})?", until):
            raise BadRequest("until", "until must be a time in seconds since 1970.")
        runs, places = chosen_runs(job, asked), _places(asked.get("pageToken", ""))
        with SearchBudget((request.user.pk, job.pk, ORDER)) as budget:
            logs = MergedLogs(runs, 0, round(float(until) * SECOND), True, places)
            lines = _page(logs, budget)
        more = {} if logs.over() else {"nextPageToken": write_token(ORDER, logs.places())}
        return Response({"lines": lines, **more})


def _page(logs: MergedLogs, budget: SearchBudget) -> list[list[Any]]:
    lines: list[list[Any]] = []
    size, stop = 0, False
    while not logs.over() and not stop:
        found = logs.step()
        if found is not None:
            lines.append(_line(found))
            size += len(lines[-1][3])
        stop = len(lines) == PAGE_SIZE or size > MAX_PAGE_BYTES or budget.spent()
    return lines


def _line(found: Found) -> list[Any]:
    at, entry = round(found.at / SECOND, 3), found.entry
    if entry.missing:
        return [found.run.pk, entry.end, at, entry.missing, True]
    return [
        found.run.pk,
        entry.end,
        at,
        entry.data.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace"),
    ]


def _places(token: str) -> dict[str, Place]:
    try:
        return read_token(token, ORDER)
    except BadToken as problem:
        raise BadRequest("pageToken", "The page token is none of an earlier answer.") from problem
