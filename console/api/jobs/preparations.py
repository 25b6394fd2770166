"""What the hosts of a job prepare before it starts: `GET /api/v1/jobs/<id>/preparations[?pageSize=]`.

What failed comes first, then what is least far. `totalSize` counts all of it, also what `pageSize` leaves out. It is
empty for a job whose hosts have all that it needs.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from agents.infra.sentences import shown
from console.api.description import Query, Size, Time, described
from console.api.query import page_size
from console.api.times import format_time
from console.api.views import TrainyardView
from console.auth import access
from jobs.models import Job
from jobs.preparations import of_jobs
from jobs.preparations.of_jobs import HostPreparation
from jobs.rules.spec.json_fields import duration

# Each of them may have 8,000 characters of output.
PAGE_SIZE, MAX_PAGE_SIZE = 100, 200


class PreparationDocument(TypedDict):
    """`kind`: `image`, `tree` (code), `environment` (Python packages) or `outputs`. `fault`: `USER` or `HOST`.
    `waitsFor`: what goes first, where its files wait for others."""

    host: str
    kind: str
    title: str
    state: str
    done: str
    total: NotRequired[str]
    unit: NotRequired[str]
    timeLeft: NotRequired[str]
    message: NotRequired[str]
    waitsFor: NotRequired[str]
    fault: NotRequired[str]
    output: NotRequired[str]
    startTime: NotRequired[Time]
    endTime: NotRequired[Time]


class Preparations(TypedDict):
    """What failed comes first, then what is least far. `totalSize` counts all."""

    preparations: list[PreparationDocument]
    totalSize: int


SIZE = Query(
    "pageSize", f"At most so many; {PAGE_SIZE} if nothing is said, never more than {MAX_PAGE_SIZE}.", Size
)


class PreparationsView(TrainyardView):
    @described("List what hosts prepare before a job starts", Preparations, needs="see", query=(SIZE,))
    def get(self, request: Request, job_id: str) -> Response:
        job = access.get_or_404(request.user, "see", Job.objects.select_related("project"), pk=int(job_id))
        size = page_size(request.query_params, PAGE_SIZE, MAX_PAGE_SIZE)
        found = of_jobs.of_job(job, timezone.now())
        may_see_output = access.can(request.user, "see_log", job)
        return Response(
            {
                "preparations": [document(each, may_see_output) for each in found[:size]],
                "totalSize": len(found),
            }
        )


def document(each: HostPreparation, may_see_output: bool) -> dict[str, Any]:
    progress = each.progress
    optional = {
        "total": None if each.total is None else str(each.total),
        "unit": each.unit,
        "timeLeft": None if progress.left_s is None else duration(max(1, round(progress.left_s))),
        "message": shown(each.message),
        "waitsFor": shown(each.turn),
        "fault": each.fault.upper(),
        "output": each.tail if may_see_output else "",
        "startTime": each.began_at and format_time(each.began_at),
        "endTime": each.ended_at and format_time(each.ended_at),
    }
    return {
        "host": progress.host,
        "kind": each.kind,
        "title": shown(progress.title),
        "state": progress.state,
        "done": str(each.done),
        **{name: value for name, value in optional.items() if value},
    }
