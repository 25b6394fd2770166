"""Says which line stands where in a log, and when it was printed.

`GET /api/v1/jobs/<id>/replicas/<name>/log/lines?line=[&run=]` says at which `offset` a line begins; if there are fewer
lines, that of the last one. `?from=[&to=]` says which `line` holds the byte at this offset, and, with `to`, the `times`
of what lies between: pairs of an offset and the second since 1970 at which it was printed, by the host's clock.

Old logs are counted when they are asked for the first time. An answer without `line` says `counting`: ask again.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from rest_framework.request import Request
from rest_framework.response import Response

from console.api.description import RUN, Query, Size, described
from console.api.errors import BadRequest
from console.api.logs.log_bytes import run_of
from console.api.query import whole_number
from console.api.views import TrainyardView
from console.auth import access
from jobs.logs import line_numbers, print_times
from jobs.logs.search_budget import SearchBudget
from jobs.models import Job, Run

Document = dict[str, Any]


class LinePlace(TypedDict):
    """`counting`: ask again. `times`: pairs of an offset and the second since 1970 at which it was printed."""

    run: str
    stored: int
    line: NotRequired[int]
    offset: NotRequired[int]
    times: NotRequired[list[list[float]]]
    counting: NotRequired[bool]


ASKED = (
    Query("line", "The number of a line: where does it begin? Say this or `from`.", Size),
    Query("from", "An offset: in which line is it?", Size),
    Query("to", "With `from`: when was printed what is between them?", Size),
    RUN,
)


class LinesView(TrainyardView):
    """Lines of one log: their numbers, their places, their times."""

    @described(
        "Find where a line of a log is, or which line is where", LinePlace, needs="see_log", query=ASKED
    )
    def get(self, request: Request, job_id: str, replica: str) -> Response:
        job = access.get_or_404(
            request.user, "see_log", Job.objects.select_related("project"), pk=int(job_id)
        )
        asked = request.query_params
        if ("line" in asked) == ("from" in asked):
            raise BadRequest("line", "Say either line or from.")
        run = run_of(job, replica, asked.get("run", ""))
        if run is None:
            return Response({"run": "", "line": 1, "offset": 0, "stored": 0})
        with SearchBudget(request.user.pk, (job.pk, "lines")) as budget:
            found = _place(run, asked["line"], budget) if "line" in asked else _number(run, asked, budget)
        return Response({"run": run.pk, "stored": run.log_stored, **(found or {"counting": True})})


def _place(run: Run, line: str, budget: SearchBudget) -> Document | None:
    found = line_numbers.find(run, whole_number("line", line), budget)
    return {"line": found.number, "offset": found.offset} if found else None


def _number(run: Run, asked: Any, budget: SearchBudget) -> Document | None:
    start = min(whole_number("from", asked["from"]), run.log_stored)
    number = line_numbers.number_at(run, start, budget)
    if number is None:
        return None
    found: Document = {"line": number, "offset": start}
    if "to" in asked:
        found["times"] = print_times.times_between(run, start, whole_number("to", asked["to"]))
    return found
